//! Margins: the list price of calls minus their cost.

use billing::margins;
use kernel::clock::{Day, Month};
use kernel::error::Error;

use crate::Operators;

pub use billing::margins::{CostGroups, CostSums, GroupCosts, Report};
pub use billing::rules::periods::Range;

/// Returns the days of a month.
pub fn days_of(month: Month) -> Range {
    Range { start: month.first_day(), end_exclusive: month.plus(1).first_day() }
}

/// Returns the days from `first` to `last`, inclusive; `None` if `last` is before `first`.
pub fn days_between(first: Day, last: Day) -> Option<Range> {
    (first <= last).then(|| Range { start: first, end_exclusive: last.plus(1) })
}

/// Reports the margins of these days by group.
///
/// # Errors
/// Those of [`margins::read`].
pub async fn read(operators: &Operators, range: Range, groups: CostGroups) -> Result<Report, Error> {
    margins::read(&operators.billing, range, groups).await
}
