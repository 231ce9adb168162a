//! Ranges of time: whole UTC days for a usage report (docs/contract/usage.md#range), two points in time for a
//! list of movements (docs/contract/billing.md#list-movements).

use kernel::clock::{Day, Time};
use kernel::error::Detail;

/// Maximum number of days of a report: a leap year.
pub const MAX_DAYS: i64 = 366;

/// A bound of a range, as the caller wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateBound {
    /// A plain date, `YYYY-MM-DD`.
    Date(Day),
    /// An RFC 3339 timestamp.
    Instant(Time),
}

impl DateBound {
    /// Parses a plain date, or a timestamp with any offset.
    pub fn parse(text: &str) -> Option<Self> {
        Day::parse(text).map(Self::Date).or_else(|| Time::parse(text).map(Self::Instant))
    }

    /// Returns the time; for a date, the start of the day.
    pub fn instant(self) -> Time {
        match self {
            Self::Date(day) => day.start(),
            Self::Instant(time) => time,
        }
    }

    /// Returns the first day of the range. A timestamp includes its whole day.
    fn first_day(self) -> Day {
        match self {
            Self::Date(day) => day,
            Self::Instant(time) => time.day(),
        }
    }

    /// Returns the exclusive end of the range. A timestamp within a day includes the whole day, because usage
    /// is kept by day. A timestamp at midnight excludes the day that it begins.
    fn end_day(self) -> Day {
        match self {
            Self::Date(day) => day,
            Self::Instant(time) if time == time.day().start() => time.day(),
            Self::Instant(time) => time.day().plus(1),
        }
    }
}

/// The UTC days from `start`, inclusive, to `end_exclusive`; empty if the two are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub start: Day,
    pub end_exclusive: Day,
}

/// Returns the range of a report; without bounds, the calendar month of `now`.
///
/// If only one bound is set, the range is completed with whole months. A start alone extends to the end of
/// the current month, or of its own month if that is later. An end alone begins with the current month, or
/// with the month of the end if that is earlier.
///
/// # Errors
/// Details for `end_date`: `end_before_start` or `range_too_long`.
pub fn range(start: Option<DateBound>, end: Option<DateBound>, now: Time) -> Result<Range, Vec<Detail>> {
    let month = now.day().month_start();
    let (start, end_exclusive) = match (start.map(DateBound::first_day), end.map(DateBound::end_day)) {
        (None, None) => (month, month.next_month_start()),
        (Some(start), None) => (start, month.next_month_start().max(start.next_month_start())),
        (None, Some(end)) => (month.min(end.plus(-1).month_start()), end),
        (Some(start), Some(end)) => (start, end),
    };
    let days = end_exclusive.unix_days().saturating_sub(start.unix_days());
    if days < 0 {
        let message = format!("must not be before `start_date` ({start}); it ends at {end_exclusive}");
        return Err(vec![end_date("end_before_start", &message)]);
    }
    if days > MAX_DAYS {
        let message = format!("must be at most {MAX_DAYS} days after `start_date`; it is {days} days after");
        return Err(vec![end_date("range_too_long", &message)]);
    }
    Ok(Range { start, end_exclusive })
}

/// The times from `start`, inclusive, to `end`, exclusive; empty if the two are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    pub start: Time,
    pub end: Time,
}

/// Returns the interval between two bounds. Without a start, it begins with the earliest time; without an
/// end, it is unbounded.
///
/// # Errors
/// A detail for `end_date`: `end_before_start`.
pub fn interval(start: Option<DateBound>, end: Option<DateBound>) -> Result<Interval, Vec<Detail>> {
    let start = start.map_or(Time::from_unix_ms(i64::MIN), DateBound::instant);
    let end = end.map_or(Time::from_unix_ms(i64::MAX), DateBound::instant);
    if end < start {
        let message = format!("must not be before `start_date` ({start}); it is {end}");
        return Err(vec![end_date("end_before_start", &message)]);
    }
    Ok(Interval { start, end })
}

fn end_date(code: &'static str, message: &str) -> Detail {
    Detail { param: "end_date".to_owned(), code, message: format!("`end_date` {message}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(start: Option<&str>, end: Option<&str>, now: &str) -> Result<(String, String), String> {
        let bound = |text: Option<&str>| text.map(|t| DateBound::parse(t).unwrap());
        let now = Time::parse(now).unwrap();
        match range(bound(start), bound(end), now) {
            Ok(range) => Ok((range.start.to_string(), range.end_exclusive.to_string())),
            Err(details) => {
                assert!(details.iter().all(|d| d.param == "end_date"));
                Err(details.iter().map(|d| d.code).collect::<Vec<_>>().join(","))
            }
        }
    }

    #[test]
    fn range_defaults_to_the_calendar_month() {
        let cases = [
            ("2026-01-31T23:59:59.999Z", "2026-01-01", "2026-02-01"),
            ("2026-02-01T00:00:00Z", "2026-02-01", "2026-03-01"),
            ("2026-02-28T12:00:00Z", "2026-02-01", "2026-03-01"),
            ("2024-02-29T12:00:00Z", "2024-02-01", "2024-03-01"),
            ("2026-12-31T23:59:59.999Z", "2026-12-01", "2027-01-01"),
            ("2027-01-01T00:00:00Z", "2027-01-01", "2027-02-01"),
        ];
        for (now, start, end) in cases {
            assert_eq!(ask(None, None, now), Ok((start.to_owned(), end.to_owned())), "{now}");
        }
    }

    #[test]
    fn bounds_become_whole_days() {
        let cases = [
            ("2026-01-10", "2026-01-20", "2026-01-10", "2026-01-20"),
            ("2026-01-10T00:00:00Z", "2026-01-20T00:00:00Z", "2026-01-10", "2026-01-20"),
            ("2026-01-10T23:59:59.999Z", "2026-01-20T00:00:00.001Z", "2026-01-10", "2026-01-21"),
            ("2026-01-10T23:59:59.999Z", "2026-01-10T23:59:59.999Z", "2026-01-10", "2026-01-11"),
            ("2026-01-10", "2026-01-10", "2026-01-10", "2026-01-10"),
            ("2026-01-10T12:00:00Z", "2026-01-10", "2026-01-10", "2026-01-10"),
            ("2026-01-11T00:30:00+02:00", "2026-01-11T00:30:00+02:00", "2026-01-10", "2026-01-11"),
            ("2026-01-11T02:00:00+02:00", "2026-01-12T02:00:00+02:00", "2026-01-11", "2026-01-12"),
            ("2024-02-28", "2024-02-29T00:00:01Z", "2024-02-28", "2024-03-01"),
            ("2023-02-28", "2023-02-28T00:00:01Z", "2023-02-28", "2023-03-01"),
            ("2025-12-31", "2025-12-31T23:59:59Z", "2025-12-31", "2026-01-01"),
            ("2024-01-01", "2025-01-01", "2024-01-01", "2025-01-01"),
            ("2025-01-01", "2026-01-02", "2025-01-01", "2026-01-02"),
            ("9999-12-30", "9999-12-30", "9999-12-30", "9999-12-30"),
        ];
        for (start, end, first, after) in cases {
            let asked = ask(Some(start), Some(end), "2026-05-05T05:05:05Z");
            assert_eq!(asked, Ok((first.to_owned(), after.to_owned())), "{start} {end}");
        }
    }

    #[test]
    fn single_bound_is_completed_by_months() {
        let now = "2026-05-15T10:00:00Z";
        let cases = [
            (Some("2026-05-10"), None, "2026-05-10", "2026-06-01"),
            (Some("2026-03-10"), None, "2026-03-10", "2026-06-01"),
            (Some("2026-07-31"), None, "2026-07-31", "2026-08-01"),
            (Some("2025-06-01"), None, "2025-06-01", "2026-06-01"),
            (None, Some("2026-05-20"), "2026-05-01", "2026-05-20"),
            (None, Some("2026-05-01"), "2026-04-01", "2026-05-01"),
            (None, Some("2026-03-15"), "2026-03-01", "2026-03-15"),
            (None, Some("2026-06-15"), "2026-05-01", "2026-06-15"),
        ];
        for (start, end, first, after) in cases {
            assert_eq!(ask(start, end, now), Ok((first.to_owned(), after.to_owned())), "{start:?} {end:?}");
        }
        assert_eq!(ask(Some("2025-05-30"), None, now), Err("range_too_long".to_owned()));
    }

    #[test]
    fn invalid_ranges_name_the_end() {
        let cases = [
            ("2026-01-02", "2026-01-01", "end_before_start"),
            ("2026-01-02T10:00:00Z", "2026-01-01T10:00:00Z", ""),
            ("2026-01-03T10:00:00Z", "2026-01-01T10:00:00Z", "end_before_start"),
            ("2024-01-01", "2025-01-02", "range_too_long"),
            ("2025-01-01", "2026-01-02T00:00:00.001Z", "range_too_long"),
            ("0001-01-01", "9999-12-30T12:00:00Z", "range_too_long"),
            ("9999-12-30", "0001-01-01", "end_before_start"),
        ];
        for (start, end, code) in cases {
            let asked = ask(Some(start), Some(end), "2026-05-05T05:05:05Z");
            // An end on the day before the start, rounded up, is still an empty range.
            assert_eq!(asked.err().unwrap_or_default(), code, "{start} {end}");
        }
    }

    #[test]
    fn instant_of_a_date_is_its_start() {
        let cases = [
            ("2026-01-31", "2026-01-31T00:00:00.000Z"),
            ("2026-01-31T01:30:00.5+02:00", "2026-01-30T23:30:00.500Z"),
        ];
        for (bound, instant) in cases {
            assert_eq!(
                DateBound::parse(bound).map(|bound| bound.instant().to_string()),
                Some(instant.into())
            );
        }
    }

    #[test]
    fn interval_keeps_its_instants() {
        let bound = |text: &str| (!text.is_empty()).then(|| DateBound::parse(text).unwrap());
        let asked = |start, end| match interval(bound(start), bound(end)) {
            Ok(interval) => format!("{} {}", interval.start, interval.end),
            Err(details) => {
                details.iter().map(|d| format!("{} {}", d.param, d.code)).collect::<Vec<_>>().join(",")
            }
        };
        let (first, last) = ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z");
        let cases = [
            ("", "", format!("{first} {last}")),
            ("2026-01-10", "", format!("2026-01-10T00:00:00.000Z {last}")),
            ("", "2026-01-10", format!("{first} 2026-01-10T00:00:00.000Z")),
            (
                "2026-01-10T09:30:00.001Z",
                "2026-01-10T11:30:00.002+02:00",
                "2026-01-10T09:30:00.001Z 2026-01-10T09:30:00.002Z".to_owned(),
            ),
            ("2026-01-10", "2026-01-10", "2026-01-10T00:00:00.000Z 2026-01-10T00:00:00.000Z".to_owned()),
            ("2026-01-10T00:00:00.001Z", "2026-01-10", "end_date end_before_start".to_owned()),
            ("9999-12-31", "0001-01-01", "end_date end_before_start".to_owned()),
        ];
        for (start, end, due) in cases {
            assert_eq!(asked(start, end), due, "{start} {end}");
        }
    }

    #[test]
    fn only_dates_and_timestamps_are_parsed() {
        assert_eq!(DateBound::parse("2026-01-31"), Day::parse("2026-01-31").map(DateBound::Date));
        for bad in ["", "2026-02-30", "2026-1-1", "yesterday", "2026-01-31T10:00:00", "1767225600"] {
            assert_eq!(DateBound::parse(bad), None, "{bad}");
        }
    }
}
