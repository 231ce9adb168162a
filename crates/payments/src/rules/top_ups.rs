//! The amount of an automatic top-up.

use kernel::currencies::ChargeUnit;
use kernel::money::Nano;

/// The balance and limits that determine a top-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The current balance minus reservations.
    pub available: Nano,
    /// The balance at or above which nothing is charged.
    pub threshold: Nano,
    /// The target balance.
    pub restore_to: Nano,
    /// Maximum charged per month, including tax.
    pub monthly_cap: Option<Nano>,
    /// Amount charged this month, including tax, in units.
    pub charged_minor: i64,
    /// Maximum credit charged per day, excluding tax.
    pub daily_maximum: Nano,
    /// Amount charged today, excluding tax, in units.
    pub charged_today_minor: i64,
    /// The minimum charge.
    pub minimum: Nano,
}

/// The charge of a top-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    /// This many units.
    Units(i64),
    /// Nothing: the balance is no longer below the threshold.
    NotNeeded,
    /// Nothing: it would exceed the monthly cap.
    OverCap,
    /// Nothing today: it would exceed the daily maximum.
    OverDay,
}

/// Returns the charge that closes the whole gap: at least the minimum, and at most what the monthly cap and
/// the daily maximum allow. `None` on overflow.
pub fn charge(gap: Gap, unit: ChargeUnit) -> Option<Charge> {
    if gap.available >= gap.threshold {
        return Some(Charge::NotNeeded);
    }
    let needed = Nano::from_units(gap.restore_to.units() - gap.available.units());
    let minimum = unit.covering(gap.minimum)?;
    let units = unit.covering(needed)?.max(minimum);
    let units = gap.most(unit).map_or(units, |most| units.min(most));
    if units < minimum {
        return Some(Charge::OverCap);
    }
    let units = units.min(left(gap.daily_maximum, gap.charged_today_minor, unit));
    Some(if units < minimum { Charge::OverDay } else { Charge::Units(units) })
}

impl Gap {
    /// Returns the units that the monthly cap still allows, including tax; `None` without a cap.
    pub fn most(&self, unit: ChargeUnit) -> Option<i64> {
        Some(left(self.monthly_cap?, self.charged_minor, unit))
    }
}

/// Returns the units that a limit still allows after earlier charges, rounded down to a chargeable amount.
fn left(limit: Nano, charged_minor: i64, unit: ChargeUnit) -> i64 {
    let left = limit.units() - unit.amount(charged_minor).units();
    let steps = left.max(0) / unit.amount(unit.step()).units();
    // A limit of more than 64 bits is no limit.
    let units = i64::try_from(steps).ok().and_then(|steps| steps.checked_mul(unit.step()));
    units.unwrap_or(i64::MAX)
}

/// Returns the units of a smaller charge whose total is about `most`. With tax, a charge of `units` has the
/// larger total `total`.
pub fn fitting(units: i64, total: i64, most: i64, unit: ChargeUnit) -> i64 {
    let part = i128::from(units) * i128::from(most) / i128::from(total.max(1));
    let step = i128::from(unit.step());
    i64::try_from(part / step * step).unwrap_or_default()
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
            daily_maximum: nano("10000"),
            charged_today_minor: 0,
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
            // The daily maximum.
            (gap("-22450", 0, None), Charge::Units(1_000_000)),
            // The remainder of the cap, rounded to a chargeable amount.
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
        // With 19 %, 40.00 comes to 47.60; 30.00 is left, hence 25.21 and 4.79. With 8.875 %, 9.99 comes to
        // 10.88; 9.98 is left.
        assert_eq!([fitting(4_000, 4_760, 3_000, usd), fitting(999, 1_088, 998, usd)], [2_521, 916]);
        assert_eq!(fitting(12_300, 14_150, 10_000, ChargeUnit::of("KWD")), 8_690);
        let small = Gap { restore_to: Nano::parse("11").unwrap(), ..gap("9", 0, None) };
        assert_eq!(charge(small, usd), Some(Charge::Units(500)), "the minimum");
    }

    #[test]
    fn day_has_a_maximum() {
        let usd = ChargeUnit::of("USD");
        let today = |charged_today_minor, cap| {
            charge(Gap { charged_today_minor, ..gap("-9000", 500_000, cap) }, usd).unwrap()
        };
        let cases = [
            (0, None, Charge::Units(905_000)),
            (500_000, None, Charge::Units(500_000)),
            (999_500, None, Charge::Units(500)),
            (999_501, None, Charge::OverDay),
            (1_000_000, None, Charge::OverDay),
            (2_000_000, None, Charge::OverDay),
            // The monthly cap is reached too, so the day makes no difference.
            (1_000_000, Some("5004.99"), Charge::OverCap),
            (500_000, Some("5100"), Charge::Units(10_000)),
        ];
        for (charged, cap, expected) in cases {
            assert_eq!(today(charged, cap), expected, "{charged} of the day, {cap:?} a month");
        }
    }
}
