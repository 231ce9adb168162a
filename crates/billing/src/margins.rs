//! Margins: the list price of calls minus the operator's cost (docs/operations.md#costs-and-margins).
//!
//! A report contains only calls on routes with a cost. Corrections, discounts, credits and refunds aren't
//! included: they lower the billed amount, but the upstream is still paid.

use std::cmp::Reverse;

use crate::Billing;
use crate::rules::periods::Range;
use crate::store::usage::costs;
use kernel::error::{Detail, Error};
use kernel::futures::BoxFuture;
use kernel::money::{Decimal, Pico};

pub use crate::store::usage::costs::{CostGroups, CostSums, GroupCosts};

/// Maximum number of rows of a report, to bound the memory.
const MAX_ROWS: usize = 100_000;

/// A report of margins.
#[derive(Clone, Debug)]
pub struct Report {
    pub range: Range,
    /// Sorted by list price, the highest first.
    pub rows: Vec<GroupCosts>,
    /// The sums of all rows.
    pub total: CostSums,
    /// An ISO 4217 code.
    pub currency: String,
}

/// A percentage with two decimal places.
pub type Percent = Decimal<2>;

impl CostSums {
    /// Returns the list price minus the cost.
    pub fn margin(&self) -> Pico {
        Pico::from_units(self.amount.units().saturating_sub(self.cost.units()))
    }

    /// Returns the margin in percent of the list price, rounded to hundredths, halves away from zero; `None`
    /// if the list price is 0.
    pub fn percent(&self) -> Option<Percent> {
        let (margin, amount) = (self.margin().units(), self.amount.units());
        let twice = margin.checked_mul(20_000)?;
        let rounded = twice.checked_add(amount.checked_mul(twice.signum())?)?;
        rounded.checked_div(amount.checked_mul(2)?).map(Percent::from_units)
    }
}

/// Reports the margins of these days by group.
///
/// # Errors
/// 400 if the report has too many rows; the database fails.
pub fn read(billing: &Billing, range: Range, groups: CostGroups) -> BoxFuture<'_, Result<Report, Error>> {
    Box::pin(async move {
        let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX).saturating_add(1);
        let mut tx = billing.db().reports().await?;
        let mut rows = costs::of_days(&mut tx, range, groups, limit).await?;
        drop(tx);
        if rows.len() > MAX_ROWS {
            let message = format!("The report would have more than {MAX_ROWS} rows: group by fewer fields.");
            return Err(Error::invalid(vec![Detail { param: "by".to_owned(), code: "too_many", message }]));
        }
        sort(&mut rows);
        let total = rows.iter().try_fold(CostSums::default(), |total, row| total.checked_add(row.sums));
        let total = total.ok_or_else(|| Error::internal("a sum of costs is too large"))?;
        Ok(Report { range, rows, total, currency: billing.settings.currency.clone() })
    })
}

/// Sorts rows by list price, the highest first, and then by their groups.
fn sort(rows: &mut [GroupCosts]) {
    rows.sort_by(|one, other| {
        let key = |row: &GroupCosts| (Reverse(row.sums.amount), Reverse(row.sums.cost));
        let group = |row: &GroupCosts| (row.model.clone(), row.organization_id, row.upstream.clone());
        key(one).cmp(&key(other)).then_with(|| group(one).cmp(&group(other)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(amount: i128, cost: i128) -> CostSums {
        CostSums { amount: Pico::from_units(amount), cost: Pico::from_units(cost), ..CostSums::default() }
    }

    #[test]
    fn margin_is_what_is_left_of_the_list_price() {
        let cases = [
            (100, 40, 60, Some("60")),
            (100, 100, 0, Some("0")),
            (100, 0, 100, Some("100")),
            (3, 1, 2, Some("66.67")),
            (3, 2, 1, Some("33.33")),
            // The margin is negative.
            (3, 5, -2, Some("-66.67")),
            (1, 1_000, -999, Some("-99900")),
            // Halves are rounded away from zero: 0.125 and -0.125 of a percent.
            (800, 799, 1, Some("0.13")),
            (800, 801, -1, Some("-0.13")),
            (0, 5, -5, None),
            (0, 0, 0, None),
        ];
        for (amount, cost, margin, percent) in cases {
            let sums = sums(amount, cost);
            assert_eq!(sums.margin().units(), margin, "{amount} {cost}");
            assert_eq!(
                sums.percent().map(|percent| percent.to_string()).as_deref(),
                percent,
                "{amount} {cost}"
            );
        }
        assert_eq!(sums(i128::MAX, 1).percent(), None);
    }

    #[test]
    fn rows_are_sorted_by_list_price() {
        let row = |model: &str, amount, cost| GroupCosts {
            model: Some(model.to_owned()),
            organization_id: None,
            organization_name: None,
            upstream: None,
            sums: sums(amount, cost),
        };
        let mut rows = [row("b", 5, 1), row("a", 5, 1), row("c", 5, 2), row("d", 9, 0), row("e", -1, 7)];
        sort(&mut rows);
        assert_eq!(rows.map(|row| row.model.unwrap()), ["d", "c", "a", "b", "e"]);
    }
}
