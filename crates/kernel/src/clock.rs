//! Times, days and months in UTC, and the injected clock.
//!
//! No other code reads the machine's clock (clippy forbids it), so that tests can advance time past month
//! ends, expiries and grace periods.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::civil;
use jiff::fmt::temporal::Pieces;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// The number of milliseconds in a second.
pub const SECOND_MS: i64 = 1_000;
/// The number of milliseconds in a minute.
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
/// The number of milliseconds in an hour.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The number of milliseconds in a day.
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// A point in time in UTC with millisecond precision, between the years 0001 and 9999.
///
/// The text form is RFC 3339 with `Z` and exactly three decimals (docs/contract/README.md#times).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(i64);

const EARLIEST_MS: i64 = -62_135_596_800_000; // 0001-01-01T00:00:00.000Z
const LATEST_MS: i64 = 253_402_300_799_999; // 9999-12-31T23:59:59.999Z

impl Time {
    /// Returns the time `unix_ms` milliseconds after 1970-01-01T00:00:00Z, clamped to the years 0001 to 9999.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        if unix_ms < EARLIEST_MS {
            Self(EARLIEST_MS)
        } else if unix_ms > LATEST_MS {
            Self(LATEST_MS)
        } else {
            Self(unix_ms)
        }
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds since 1970-01-01T00:00:00Z, rounded down.
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(SECOND_MS)
    }

    /// Returns this time plus `ms` milliseconds, which may be negative.
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self::from_unix_ms(self.0.saturating_add(ms))
    }

    /// Formats the time as the value of the header `date`, in whole seconds.
    pub fn to_http_date(self) -> String {
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        printer.timestamp_to_rfc9110_string(&at).unwrap_or_default()
    }

    /// Parses a time in the format of HTTP headers, such as `Sat, 31 Jan 2026 09:30:00 GMT`.
    pub fn parse_http_date(text: &str) -> Option<Self> {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Self::from_unix_ms(at.as_millisecond()))
    }

    /// Returns the UTC day of this time.
    pub const fn day(self) -> Day {
        Day(self.0.div_euclid(DAY_MS))
    }

    /// Parses RFC 3339 with any offset. Digits beyond milliseconds are dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        // jiff also reads looser forms of ISO 8601.
        let separator = bytes.get(10).is_some_and(|b| matches!(b, b'T' | b't'));
        if bytes.len() > 64 || !separator || text.contains('[') {
            return None;
        }
        let pieces = Pieces::parse(text).ok()?;
        let (time, offset) = (pieces.time()?, pieces.to_numeric_offset()?);
        let ms_of_day = i64::from(time.hour()) * HOUR_MS
            + i64::from(time.minute()) * MINUTE_MS
            + i64::from(time.second()) * SECOND_MS
            + i64::from(time.millisecond());
        let local_ms = days_of(pieces.date()).checked_mul(DAY_MS)?.checked_add(ms_of_day)?;
        let unix_ms = local_ms.checked_sub(i64::from(offset.seconds()) * SECOND_MS)?;
        (EARLIEST_MS..=LATEST_MS).contains(&unix_ms).then_some(Self(unix_ms))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl Time {
    /// Formats the time without `fmt`, which is slower. Most responses contain times, and each log line
    /// contains one.
    fn text(self) -> [u8; 24] {
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let (year, month, day) = self.day().civil();
        let ms_of_day = self.0.rem_euclid(DAY_MS);
        let (hour, minute) = (ms_of_day / HOUR_MS, ms_of_day / MINUTE_MS % 60);
        let (second, ms) = (ms_of_day / SECOND_MS % 60, ms_of_day % SECOND_MS);
        // Each entry is a number with the index after its last digit.
        for (end, number) in
            [(4, year), (7, month), (10, day), (13, hour), (16, minute), (19, second), (23, ms)]
        {
            let mut rest = number.unsigned_abs();
            for slot in text.iter_mut().take(end).rev() {
                if rest == 0 {
                    break;
                }
                *slot = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
            }
        }
        text
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339 in UTC with milliseconds",
            "examples": ["2026-01-31T09:30:00.000Z"],
        })
    }
}

/// A calendar day in UTC, counted from 1970-01-01. The text form is `YYYY-MM-DD`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Day(i64);

impl Day {
    /// Returns the day `unix_days` days after 1970-01-01.
    pub const fn from_unix_days(unix_days: i64) -> Self {
        Self(unix_days)
    }

    /// Returns the days since 1970-01-01.
    pub const fn unix_days(self) -> i64 {
        self.0
    }

    /// Returns the start of the day.
    pub const fn start(self) -> Time {
        Time::from_unix_ms(self.0.saturating_mul(DAY_MS))
    }

    /// Returns this day plus `days`, which may be negative.
    pub const fn plus(self, days: i64) -> Self {
        Self(self.0.saturating_add(days))
    }

    /// Returns the first day of this day's calendar month.
    pub fn month_start(self) -> Self {
        let (_, _, day_of_month) = self.civil();
        self.plus(1 - day_of_month)
    }

    /// Returns the first day of the next calendar month.
    pub fn next_month_start(self) -> Self {
        // The longest month has 31 days, so 31 days after the first day is always in the next month.
        self.month_start().plus(31).month_start()
    }

    /// Parses `YYYY-MM-DD`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 10 {
            return None;
        }
        let date: civil::Date = text.parse().ok()?;
        let (year, month, day) = (date.year(), date.month(), date.day());
        // jiff also reads looser forms of ISO 8601.
        let canonical = format!("{year:04}-{month:02}-{day:02}") == text;
        if !canonical || year < 1 {
            return None;
        }
        Some(Self(days_of(date)))
    }

    /// Returns the calendar month of this day.
    pub fn month(self) -> Month {
        let (year, month, _) = self.civil();
        Month((year - 1970) * 12 + month - 1)
    }

    /// Returns the year, the month (1 to 12) and the day of the month (1 to 31) in the proleptic Gregorian
    /// calendar.
    fn civil(self) -> (i64, i64, i64) {
        // The calculation uses eras of 400 years (146,097 days) that begin on March 1, so that leap days are
        // at the end of a year.
        let shifted = self.0.saturating_add(719_468);
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }
}

const EPOCH: civil::Date = civil::date(1970, 1, 1);

/// Returns the number of days from 1970-01-01 to this date.
fn days_of(date: civil::Date) -> i64 {
    date.duration_since(EPOCH).as_hours() / 24
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Day {
    fn schema_name() -> Cow<'static, str> {
        "Day".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date",
            "description": "A UTC day",
            "examples": ["2026-01-31"],
        })
    }
}

/// A calendar month in UTC, counted from 1970-01. The text form is `YYYY-MM`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Month(i64);

impl Month {
    /// Returns the month `unix_months` months after 1970-01.
    pub const fn from_unix_months(unix_months: i64) -> Self {
        Self(unix_months)
    }

    /// Returns the months since 1970-01.
    pub const fn unix_months(self) -> i64 {
        self.0
    }

    /// Parses `YYYY-MM`.
    pub fn parse(text: &str) -> Option<Self> {
        Day::parse(&format!("{text}-01")).map(Day::month)
    }

    /// Returns this month plus `months`, which may be negative.
    pub const fn plus(self, months: i64) -> Self {
        Self(self.0.saturating_add(months))
    }

    pub fn first_day(self) -> Day {
        // The average length of a month is 30.436875 days. The number of months times this length, plus 15
        // days, is always a day of this month.
        Day(self.0.saturating_mul(30_436_875).div_euclid(1_000_000).saturating_add(15)).month_start()
    }

    pub fn start(self) -> Time {
        self.first_day().start()
    }

    /// Returns the start of the next month.
    pub fn end(self) -> Time {
        self.plus(1).start()
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month) = (self.0.div_euclid(12) + 1970, self.0.rem_euclid(12) + 1);
        write!(f, "{year:04}-{month:02}")
    }
}

/// The source of the current time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock for tests, in Unix milliseconds, which doesn't advance until it is moved.
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// Returns a clock that shows `time` until [`Clock::advance_ms`] moves it.
    pub fn fixed(time: Time) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(time.unix_ms())))
    }

    pub fn now(&self) -> Time {
        match self {
            #[allow(clippy::disallowed_methods, reason = "the only place that reads the machine's clock")]
            Self::System => Time::from_unix_ms(jiff::Timestamp::now().as_millisecond()),
            Self::Fixed(unix_ms) => Time::from_unix_ms(unix_ms.load(Ordering::SeqCst)),
        }
    }

    /// Returns the milliseconds of a monotonic clock, which on Linux also advances while the machine is
    /// suspended. A fixed clock returns its own time.
    pub fn steady_ms(&self) -> i64 {
        match self {
            Self::System => machine_steady_ms(),
            Self::Fixed(unix_ms) => unix_ms.load(Ordering::SeqCst),
        }
    }

    /// Returns `true` for a fixed clock, which can't be compared with other clocks.
    pub const fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Moves a fixed clock by `ms` milliseconds. Has no effect on the machine's clock.
    pub fn advance_ms(&self, ms: i64) {
        if let Self::Fixed(unix_ms) = self {
            unix_ms.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

#[cfg(target_os = "linux")]
fn machine_steady_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(SECOND_MS).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "the only place that reads the machine's clock")]
fn machine_steady_ms() -> i64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let since = START.get_or_init(std::time::Instant::now).elapsed();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_day_of_month_matches_month_start() {
        for days in -800_000..2_900_000 {
            let day = Day::from_unix_days(days);
            assert_eq!(day.month().first_day(), day.month_start(), "{day}");
        }
        let month = Day::parse("2026-02-28").unwrap().month();
        assert_eq!((month.unix_months(), month.to_string().as_str()), (673, "2026-02"));
        assert_eq!(month.end(), Time::parse("2026-03-01T00:00:00Z").unwrap());
        assert_eq!(month.plus(-2).to_string(), "2025-12");
    }

    #[test]
    fn times_read_any_offset_and_print_utc() {
        let cases = [
            ("2026-01-31T09:30:00Z", Some("2026-01-31T09:30:00.000Z")),
            ("2026-01-31T09:30:00.1239Z", Some("2026-01-31T09:30:00.123Z")),
            ("2026-01-31T00:30:00+02:00", Some("2026-01-30T22:30:00.000Z")),
            ("1969-12-31T23:59:59.999Z", Some("1969-12-31T23:59:59.999Z")),
            ("9999-12-31T23:59:59.999Z", Some("9999-12-31T23:59:59.999Z")),
            ("9999-12-31T23:59:59.999-00:01", None),
            ("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00.000Z")),
            ("0000-12-31T23:59:59Z", None),
            ("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00.000Z")),
            ("2023-02-29T00:00:00Z", None),
            ("2026-01-31 09:30:00Z", None),
            ("2026-01-31T09:30:00", None),
            ("2026-01-31T09:30:00Z[UTC]", None),
            ("2026-01-31", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Time::parse(text).map(|t| t.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn times_print_like_jiff() {
        let mut ms = EARLIEST_MS;
        let mut seen = 0;
        // The step and the units have no common divisor, so that every part of a time takes every value.
        while ms < LATEST_MS {
            let expected = jiff::Timestamp::from_millisecond(ms).unwrap();
            assert_eq!(Time(ms).to_string(), expected.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
            (ms, seen) = (ms + 31_556_952_007, seen + 1);
        }
        assert!(seen > 9_000);
        assert_eq!(Time(LATEST_MS).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Time(EARLIEST_MS).to_string(), "0001-01-01T00:00:00.000Z");
        assert_eq!(serde_json::to_string(&Time(0)).unwrap(), "\"1970-01-01T00:00:00.000Z\"");
    }

    #[test]
    fn month_bounds_of_days() {
        let cases = [
            ("2026-01-31", "2026-01-01", "2026-02-01"),
            ("2024-02-29", "2024-02-01", "2024-03-01"),
            ("2026-12-01", "2026-12-01", "2027-01-01"),
        ];
        for (day, first, next) in cases {
            let day = Day::parse(day).unwrap();
            assert_eq!(day.month_start().to_string(), first);
            assert_eq!(day.next_month_start().to_string(), next);
            assert_eq!(day.start().day(), day);
        }
        for bad in ["2026-1-31", "2023-02-29", "20260131", "2026-01-31T", "+026-01-31", "0000-01-01"] {
            assert_eq!(Day::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn calendar_matches_jiff() {
        let mut date = civil::date(1, 1, 1);
        for unix_days in days_of(date)..=days_of(civil::date(9999, 12, 31)) {
            let theirs = (i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
            assert_eq!(Day::from_unix_days(unix_days).civil(), theirs);
            assert_eq!(days_of(date), unix_days);
            date = date.tomorrow().unwrap_or(date);
        }
    }

    #[test]
    fn fixed_clock_moves_only_when_advanced() {
        let clock = Clock::fixed(Time::from_unix_ms(5));
        assert_eq!(clock.now(), clock.now());
        clock.advance_ms(DAY_MS);
        assert_eq!(clock.now().unix_ms(), DAY_MS + 5);
    }
}
