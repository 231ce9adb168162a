//! How much an automatic top-up charges.

use kernel::currencies::ChargeUnit;
use kernel::money::Nano;

/// What a top-up is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// What the balance has now, less what is reserved.
    pub available: Nano,
    /// Nothing is charged at or above it.
    pub threshold: Nano,
    /// What the balance should have afterwards.
    pub restore_to: Nano,
    /// The most that may be charged in a month.
    pub monthly_cap: Option<Nano>,
    /// What was charged in this month, in units.
    pub charged_minor: i64,
    /// The least that is charged.
    pub minimum: Nano,
}

/// What a top-up charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// This many units.
    Units(i64),
    /// Nothing: the balance isn't below the threshold any more.
    NotNeeded,
    /// Nothing: it would pass the most that may be charged in a month.
    OverCap,
}

/// Returns what is charged to close the whole gap at once: at least the minimum, and at most what the month's cap leaves.
/// `None` if the amount has no number.
pub fn charge(gap: Gap, unit: ChargeUnit) -> Option<Charge> {
    if gap.available >= gap.threshold {
        return Some(Charge::NotNeeded);
    }
    let needed = Nano::from_units(gap.restore_to.units() - gap.available.units());
    let minimum = unit.covering(gap.minimum)?;
    let units = unit.covering(needed)?.max(minimum);
    let Some(cap) = gap.monthly_cap else { return Some(Charge::Units(units)) };
    let left = cap.units() - unit.amount(gap.charged_minor).units();
    let most = unit.covering(Nano::from_units(left.max(0)))?;
    // What covers the rest may be a part of a unit more than it.
    let most = if unit.amount(most).units() > left.max(0) { most.checked_sub(unit.step())? } else { most };
    Some(match units.min(most) {
        units if units >= minimum => Charge::Units(units),
        _ => Charge::OverCap,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(available: &str, charged_minor: i64, cap: Option<&str>) -> Gap {
        let nano = |text: &str| Nano::parse(text).unwrap();
        Gap {
            available: nano(available),
            threshold: nano("10"),
            restore_to: nano("50"),
            monthly_cap: cap.map(nano),
            charged_minor,
            minimum: nano("5"),
        }
    }

    #[test]
    fn one_charge_closes_the_whole_gap() {
        let usd = ChargeUnit::of("USD");
        let cases = [
            (gap("10", 0, None), Charge::NotNeeded),
            (gap("9.999999999", 0, None), Charge::Units(4_001)),
            (gap("0", 0, None), Charge::Units(5_000)),
            (gap("-3.5", 0, None), Charge::Units(5_350)),
            (gap("0", 0, Some("100")), Charge::Units(5_000)),
            // What the cap leaves, as far as it can be charged.
            (gap("0", 6_000, Some("100")), Charge::Units(4_000)),
            (gap("0", 6_000, Some("99.999")), Charge::Units(3_999)),
            (gap("0", 9_500, Some("100")), Charge::Units(500)),
            (gap("0", 9_501, Some("100")), Charge::OverCap),
            (gap("0", 10_000, Some("100")), Charge::OverCap),
            (gap("0", 20_000, Some("100")), Charge::OverCap),
        ];
        for (gap, expected) in cases {
            assert_eq!(charge(gap, usd), Some(expected), "{gap:?}");
        }
        let small = Gap { restore_to: Nano::parse("11").unwrap(), ..gap("9", 0, None) };
        assert_eq!(charge(small, usd), Some(Charge::Units(500)), "the minimum");
    }
}
