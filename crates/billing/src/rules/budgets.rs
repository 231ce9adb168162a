//! Budgets: the amount that an organization, a project or an API key may use in a period
//! (docs/contract/billing.md#budgets).

use std::fmt;

use db::{FromValue, Value};
use kernel::clock::{Day, Time};
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, CallerId, OrganizationId, ProjectId};
use kernel::money::{Nano, Pico};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Maximum number of budgets of an organization.
pub const MAX_PER_ORGANIZATION: i64 = 1_000;
/// Maximum number of budgets of one organization, project or API key, because each call checks all of them.
pub const MAX_PER_SUBJECT: i64 = 10;
/// Maximum limit, in nano: 9,000,000,000 of the currency.
pub const MAX_LIMIT: Nano = Nano::from_units(9_000_000_000_000_000_000);
/// Maximum number of thresholds.
pub const MAX_THRESHOLDS: usize = 10;
/// Maximum threshold, in percent of the limit.
pub const MAX_PERCENT: i64 = 1_000;

/// The subject of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// All usage of the organization.
    Organization,
    /// The usage of one project.
    Project,
    /// The usage of one API key.
    ApiKey,
}

db::words!(Scope);

/// The organization, project or API key whose usage a budget counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    Organization(OrganizationId),
    Project(ProjectId),
    ApiKey(ApiKeyId),
}

impl Subject {
    pub const fn scope(self) -> Scope {
        match self {
            Self::Organization(_) => Scope::Organization,
            Self::Project(_) => Scope::Project,
            Self::ApiKey(_) => Scope::ApiKey,
        }
    }
}

/// The caller of usage and reservations, with its project and organization. Each of the three may have
/// budgets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spender {
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    /// `None` if it isn't known, because earlier versions didn't store users.
    pub caller: Option<CallerId>,
}

impl Spender {
    /// Returns the subjects whose budgets count this usage.
    pub fn subjects(self) -> impl Iterator<Item = Subject> {
        let api_key = match self.caller {
            Some(CallerId::ApiKey(id)) => Some(Subject::ApiKey(id)),
            Some(CallerId::User(_)) | None => None,
        };
        let outer = [Subject::Organization(self.organization_id), Subject::Project(self.project_id)];
        outer.into_iter().chain(api_key)
    }
}

impl From<Subject> for Value {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::Organization(id) => id.into(),
            Subject::Project(id) => id.into(),
            Subject::ApiKey(id) => id.into(),
        }
    }
}

impl FromValue for Subject {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        let organization = OrganizationId::parse(text).map(Self::Organization);
        let project = || ProjectId::parse(text).map(Self::Project);
        organization.or_else(project).or_else(|| ApiKeyId::parse(text).map(Self::ApiKey))
    }
}

/// The period of a budget's limit, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Period {
    /// A calendar day.
    Day,
    /// A calendar month.
    Month,
    /// All time.
    Total,
}

db::words!(Period);

impl Period {
    /// Returns the first day of the period that contains a day. The only period of `total` begins on
    /// 1970-01-01.
    pub fn start(self, day: Day) -> Day {
        match self {
            Self::Day => day,
            Self::Month => day.month_start(),
            Self::Total => Day::from_unix_days(0),
        }
    }

    /// Returns the end, exclusive, of the period that begins on a day; `None` for `total`.
    pub fn end(self, start: Day) -> Option<Time> {
        match self {
            Self::Day => Some(start.plus(1).start()),
            Self::Month => Some(start.next_month_start().start()),
            Self::Total => None,
        }
    }

    /// Returns a string such as `2026-01-31`, `2026-01` or `in all`.
    pub fn label(self, start: Day) -> String {
        match self {
            Self::Day => start.to_string(),
            Self::Month => start.month().to_string(),
            Self::Total => "in all".to_owned(),
        }
    }
}

/// The parts of a limit at which users are notified, in percent: ascending, at most [`MAX_THRESHOLDS`], each
/// from 1 to [`MAX_PERCENT`]. Stored as `50,80,100`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thresholds(Vec<i64>);

impl Thresholds {
    /// Returns the thresholds; `None` if they violate a rule of [`Thresholds`].
    pub fn new(percents: Vec<i64>) -> Option<Self> {
        let fit = percents.len() <= MAX_THRESHOLDS
            && percents.iter().all(|percent| (1..=MAX_PERCENT).contains(percent))
            && percents.is_sorted_by(|one, next| one < next);
        fit.then_some(Self(percents))
    }

    /// Returns the thresholds in percent.
    pub fn percents(&self) -> &[i64] {
        &self.0
    }

    /// Returns the thresholds above `highest` that the spent amount has reached.
    pub fn reached(&self, spent: Pico, limit: Nano, highest: i64) -> impl Iterator<Item = i64> {
        let new = self.0.iter().copied().filter(move |percent| *percent > highest);
        new.filter(move |percent| has_reached(spent, limit, *percent))
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self(vec![50, 80, 100])
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(i64::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl From<&Thresholds> for Value {
    fn from(thresholds: &Thresholds) -> Self {
        Self::Text(thresholds.to_string())
    }
}

impl FromValue for Thresholds {
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        let parts = text.split(',').filter(|part| !part.is_empty());
        Self::new(parts.map(str::parse).collect::<Result<_, _>>().ok()?)
    }
}

/// Returns `true` if the spent amount is at least this part of the limit.
fn has_reached(spent: Pico, limit: Nano, percent: i64) -> bool {
    // The products stay below 2^64 * 1000 * 1000, which fits in 128 bits.
    spent.units().saturating_mul(100) >= limit.units().saturating_mul(1_000).saturating_mul(percent.into())
}

/// Returns `true` if the spent amount is the limit or more.
pub fn is_used_up(spent: Pico, limit: Nano) -> bool {
    has_reached(spent, limit, 100)
}

/// Returns the remaining part of a limit: negative if more than the limit is spent and reserved.
pub fn left(limit: Nano, spent: Pico, reserved: Nano) -> Pico {
    Pico::from_units((limit.units() - reserved.units()).saturating_mul(1_000).saturating_sub(spent.units()))
}

/// Returns `true` if this amount can also be reserved.
pub fn covers(limit: Nano, spent: Pico, reserved: Nano, amount: Nano) -> bool {
    left(limit, spent, reserved).units() >= amount.units().saturating_mul(1_000)
}

/// Checks that one more budget may be created: the organization has `count` budgets, and the subject of the
/// new budget has `of_subject`.
///
/// # Errors
/// 409 `limit_reached`.
pub fn check_count(count: i64, of_subject: i64) -> Result<(), Error> {
    let (max, owner) = match (count, of_subject) {
        (MAX_PER_ORGANIZATION.., _) => (MAX_PER_ORGANIZATION, "This organization"),
        (_, MAX_PER_SUBJECT..) => (MAX_PER_SUBJECT, "The organization, project or API key of this budget"),
        _ => return Ok(()),
    };
    let message = format!("{owner} already has {max} budgets, the maximum. Delete one first.");
    Err(Error::new(Code::LimitReached).message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        Day::parse(text).unwrap()
    }

    fn nano(text: &str) -> Nano {
        Nano::parse(text).unwrap()
    }

    fn pico(text: &str) -> Pico {
        Pico::parse(text).unwrap()
    }

    #[test]
    fn periods_are_calendar_days_and_months() {
        let time = |text| Some(Time::parse(text).unwrap());
        let leap_day = day("2028-02-29");
        assert_eq!(Period::Day.start(leap_day), leap_day);
        assert_eq!(Period::Day.end(leap_day), time("2028-03-01T00:00:00Z"));
        assert_eq!(Period::Month.start(leap_day), day("2028-02-01"));
        assert_eq!(Period::Month.end(day("2028-02-01")), time("2028-03-01T00:00:00Z"));
        assert_eq!(Period::Month.end(day("2026-12-01")), time("2027-01-01T00:00:00Z"));
        assert_eq!((Period::Total.start(leap_day), Period::Total.end(leap_day)), (day("1970-01-01"), None));
        let labels = [Period::Day, Period::Month, Period::Total].map(|period| period.label(leap_day));
        assert_eq!(labels, ["2028-02-29", "2028-02", "in all"]);
    }

    #[test]
    fn last_nano_can_be_reserved() {
        // 10 = 4.000000000001 spent + 2 reserved + 3.999999999 + less than a nano.
        let covers = |amount| covers(nano("10"), pico("4.000000000001"), nano("2"), nano(amount));
        assert!(covers("3.999999999") && !covers("4"));
        assert_eq!(left(nano("10"), pico("4.000000000001"), nano("2")), pico("3.999999999999"));
        assert_eq!(left(nano("1"), pico("4"), nano("2")), pico("-5"));
    }

    #[test]
    fn thresholds_are_ascending_percents() {
        for good in [vec![], vec![1], vec![50, 80, 100], vec![1_000], (1..=10).collect()] {
            let thresholds = Thresholds::new(good.clone()).unwrap();
            assert_eq!(thresholds.percents(), good);
            assert_eq!(Thresholds::from_value(&(&thresholds).into()), Some(thresholds));
        }
        for bad in [vec![0], vec![1_001], vec![-1], vec![50, 50], vec![80, 50], (1..=11).collect()] {
            assert_eq!(Thresholds::new(bad.clone()), None, "{bad:?}");
        }
        assert_eq!(Thresholds::default().to_string(), "50,80,100");
    }

    #[test]
    fn thresholds_are_reached_once() {
        let reached = |spent, highest| -> Vec<i64> {
            Thresholds::default().reached(pico(spent), nano("10"), highest).collect()
        };
        assert_eq!(reached("4.999999999999", 0), Vec::<i64>::new());
        assert_eq!(reached("5", 0), [50]);
        assert_eq!(reached("5", 50), Vec::<i64>::new());
        assert_eq!(reached("10", 0), [50, 80, 100]);
        assert_eq!(reached("12", 50), [80, 100]);
        assert_eq!(reached("-1", 0), Vec::<i64>::new());
    }

    #[test]
    fn budgets_are_counted() {
        assert!(check_count(999, 9).is_ok());
        for (count, of_subject) in [(1_000, 0), (1_001, 0), (10, 10), (20, 11)] {
            let refused = check_count(count, of_subject).unwrap_err();
            assert_eq!(refused.code, Code::LimitReached, "{count} {of_subject}");
        }
    }

    #[test]
    fn stored_values_never_change() {
        assert_eq!(
            [Scope::Organization, Scope::Project, Scope::ApiKey].map(Scope::as_str),
            ["organization", "project", "api_key"]
        );
        assert_eq!(
            [Period::Day, Period::Month, Period::Total].map(Period::as_str),
            ["day", "month", "total"]
        );
    }
}
