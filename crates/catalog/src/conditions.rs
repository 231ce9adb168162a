//! The conditions of a price, and the choice of the price of a call
//! (docs/contract/models.md#conditions-of-a-price).

use std::fmt::{self, Write};

use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use kernel::clock::{DAY_MS, MINUTE_MS, Time};

/// The service tier of an answer.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize, EnumString, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ServiceTier {
    #[default]
    Default,
    Flex,
    Priority,
    Batch,
}

impl ServiceTier {
    /// Every tier.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name in files, requests and answers.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads the tier of an answer. Unknown tiers count as the default, as does Anthropic's `standard`.
    pub fn of_answer(text: &str) -> Self {
        text.parse().unwrap_or_default()
    }
}

/// The number of minutes of a week. Weeks begin on Monday at 00:00 UTC.
const WEEK: u16 = 7 * DAY;
const DAY: u16 = 24 * 60;

/// A set of hours of the week in UTC.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hours {
    /// Ranges of minutes of the week, each with its start and its exclusive end. The ranges are sorted and
    /// disjoint.
    spans: Vec<(u16, u16)>,
}

/// The format of hours in a catalog.
pub const HOURS_FORM: &str = "hours in UTC such as [\"mon-fri 20:00-08:00\", \"sat-sun\"]";

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Hours {
    /// Parses patterns of days, of hours, or of both. A span whose end is before its start ends on the next
    /// day. Returns `None` if a pattern is malformed or if no pattern is given.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut spans = Vec::new();
        for pattern in patterns {
            add_pattern(pattern, &mut spans)?;
        }
        Self::merged(spans)
    }

    fn merged(mut spans: Vec<(u16, u16)>) -> Option<Self> {
        spans.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(spans.len());
        for (start, end) in spans {
            match merged.last_mut() {
                Some((_, last)) if *last >= start => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        (!merged.is_empty()).then_some(Self { spans: merged })
    }

    /// Returns `true` if `time` is within these hours.
    pub fn contain(&self, time: Time) -> bool {
        // Unix time began on a Thursday.
        let minutes = (time.unix_ms() + 3 * DAY_MS).div_euclid(MINUTE_MS).rem_euclid(WEEK.into());
        let within = |(start, end): &(u16, u16)| (i64::from(*start)..i64::from(*end)).contains(&minutes);
        self.spans.iter().any(within)
    }

    fn meet(&self, other: &Self) -> bool {
        let apart = |one: &(u16, u16), two: &(u16, u16)| one.1 <= two.0 || two.1 <= one.0;
        self.spans.iter().any(|one| other.spans.iter().any(|two| !apart(one, two)))
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (start, end)) in self.spans.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            let moment = |minute: u16| {
                let day = DAYS.get(usize::from(minute / DAY)).copied().unwrap_or("mon");
                format!("{day} {:02}:{:02}", minute % DAY / 60, minute % 60)
            };
            write!(f, "{comma}{} to {}", moment(*start), moment(*end))?;
        }
        f.write_str(" UTC")
    }
}

/// Adds the ranges of minutes that a pattern matches.
fn add_pattern(pattern: &str, spans: &mut Vec<(u16, u16)>) -> Option<()> {
    let (days, hours) = match pattern.split_once(' ') {
        Some((days, hours)) => (days, hours),
        None if pattern.starts_with(|first: char| first.is_ascii_digit()) => ("mon-sun", pattern),
        None => (pattern, "00:00-24:00"),
    };
    let (start, end) = hours.split_once('-')?;
    let (start, end) = (minute(start)?, minute(end)?);
    let length = if end > start { end - start } else { end + DAY - start };
    if start == DAY || start == end {
        return None;
    }
    let (first, last) = days.split_once('-').unwrap_or((days, days));
    let number = |name: &str| DAYS.iter().position(|day| *day == name);
    let (first, last) = (number(first)?, number(last)?);
    let count = (last + 7 - first) % 7;
    for day in first..=first + count {
        let from = u16::try_from(day % 7).ok()? * DAY + start;
        let to = from + length;
        spans.push((from, to.min(WEEK)));
        if to > WEEK {
            spans.push((0, to - WEEK));
        }
    }
    Some(())
}

/// Parses a time of day, up to `24:00`, and returns its minute of the day.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<u16>().ok())?;
    let (hour, minute) = (number(hour)?, number(minute)?);
    let at = hour * 60 + minute;
    (minute < 60 && at <= DAY).then_some(at)
}

/// The properties of a call that select its price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallFacts {
    /// The time at which the call was admitted.
    pub time: Time,
    /// The tokens of the prompt, including cached tokens.
    pub prompt_tokens: i64,
    /// The service tier of the answer.
    pub service_tier: ServiceTier,
}

/// The conditions under which a price applies. A price without conditions applies if no other price with the
/// same effective time does.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Conditions {
    pub service_tier: Option<ServiceTier>,
    /// The price applies to prompts with more tokens than this.
    pub above_prompt_tokens: Option<i64>,
    /// The price applies to calls that were admitted within these hours.
    pub hours: Option<Hours>,
}

impl Conditions {
    /// Returns `true` if no condition is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a call meets all conditions.
    pub fn hold(&self, call: &CallFacts) -> bool {
        self.service_tier.is_none_or(|tier| tier == call.service_tier)
            && self.above_prompt_tokens.is_none_or(|tokens| call.prompt_tokens > tokens)
            && self.hours.as_ref().is_none_or(|hours| hours.contain(call.time))
    }

    /// Returns the rank by which a price is chosen among the prices whose conditions are met: a condition on
    /// the tier takes precedence, then the highest number of tokens, then hours.
    pub fn rank(&self) -> (bool, Option<i64>, bool) {
        (self.service_tier.is_some(), self.above_prompt_tokens, self.hours.is_some())
    }

    /// Returns `true` if a call can meet both sets of conditions and neither takes precedence.
    pub fn overlap(&self, other: &Self) -> bool {
        let hours = match (&self.hours, &other.hours) {
            (Some(one), Some(two)) => one.meet(two),
            _ => true,
        };
        self.rank() == other.rank() && self.service_tier == other.service_tier && hours
    }

    /// Returns the stored form of the conditions; empty if no condition exists.
    pub fn to_text(&self) -> String {
        let mut words = Vec::new();
        if let Some(tier) = self.service_tier {
            words.push(format!("tier:{}", tier.as_str()));
        }
        if let Some(tokens) = self.above_prompt_tokens {
            words.push(format!("above:{tokens}"));
        }
        if let Some(Hours { spans }) = &self.hours {
            let spans: Vec<_> = spans.iter().map(|(start, end)| format!("{start}-{end}")).collect();
            words.push(format!("hours:{}", spans.join(",")));
        }
        words.join(" ")
    }

    /// Parses the output of [`to_text`](Self::to_text); returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut conditions = Self::default();
        for word in text.split_whitespace() {
            match word.split_once(':')? {
                ("tier", tier) => conditions.service_tier = Some(tier.parse().ok()?),
                ("above", tokens) => conditions.above_prompt_tokens = Some(tokens.parse().ok()?),
                ("hours", spans) => {
                    let span = |span: &str| {
                        let (start, end) = span.split_once('-')?;
                        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
                        (start < end && end <= WEEK).then_some((start, end))
                    };
                    conditions.hours = Hours::merged(spans.split(',').map(span).collect::<Option<_>>()?);
                }
                _ => return None,
            }
        }
        Some(conditions)
    }
}

/// Formats the conditions, for example as `flex, above 200000 prompt tokens`.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // Writing to a `String` can't fail.
        if let Some(tier) = self.service_tier {
            write!(text, ", {}", tier.as_str()).ok();
        }
        if let Some(tokens) = self.above_prompt_tokens {
            write!(text, ", above {tokens} prompt tokens").ok();
        }
        if let Some(hours) = &self.hours {
            write!(text, ", {hours}").ok();
        }
        f.write_str(text.strip_prefix(", ").unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn hours_are_of_the_week_in_utc() {
        // 2026-11-30 is a Monday.
        let cases: [(&[&str], &str, bool); 16] = [
            (&["mon-fri 08:00-20:00"], "2026-11-30T07:59:59.999Z", false),
            (&["mon-fri 08:00-20:00"], "2026-11-30T08:00:00Z", true),
            (&["mon-fri 08:00-20:00"], "2026-12-04T19:59:59.999Z", true),
            (&["mon-fri 08:00-20:00"], "2026-12-04T20:00:00Z", false),
            (&["mon-fri 08:00-20:00"], "2026-12-05T10:00:00Z", false),
            (&["sat-sun"], "2026-12-05T00:00:00Z", true),
            (&["sat", "sun"], "2026-12-07T00:00:00Z", false),
            (&["22:00-06:00"], "2026-12-02T22:00:00Z", true),
            (&["22:00-06:00"], "2026-12-03T05:59:59Z", true),
            (&["22:00-06:00"], "2026-12-03T06:00:00Z", false),
            // Friday night ends on Saturday, and Sunday night on Monday.
            (&["fri 22:00-06:00"], "2026-12-05T05:00:00Z", true),
            (&["fri 22:00-06:00"], "2026-12-04T05:00:00Z", false),
            (&["sun 22:00-06:00"], "2026-11-30T05:00:00Z", true),
            (&["sat-mon"], "2026-11-30T12:00:00Z", true),
            (&["sat-mon"], "2026-12-01T00:00:00Z", false),
            (&["mon 00:00-01:00", "tue 23:00-24:00"], "2026-12-01T23:59:00Z", true),
        ];
        for (patterns, time, expected) in cases {
            let hours = Hours::parse(patterns.iter().copied()).unwrap();
            assert_eq!(hours.contain(at(time)), expected, "{patterns:?} {time}");
        }
        for wrong in [
            "",
            "mon 8:00-9:00",
            "08:00",
            "mon-xyz",
            "08:00-08:00",
            "24:00-08:00",
            "08:60-09:00",
            "25:00-26:00",
            "mon  08:00-09:00",
            "sat,sun",
        ] {
            assert_eq!(Hours::parse([wrong]), None, "{wrong}");
        }
        assert_eq!(Hours::parse([]), None);
    }

    #[test]
    fn text_is_read_back() {
        let conditions = Conditions {
            service_tier: Some(ServiceTier::Flex),
            above_prompt_tokens: Some(200_000),
            hours: Hours::parse(["22:00-06:00"]),
        };
        let text = conditions.to_text();
        assert!(text.starts_with("tier:flex above:200000 hours:0-360,1320-1800,"), "{text}");
        assert_eq!(Conditions::parse(&text), Some(conditions));
        assert_eq!(
            (Conditions::default().to_text(), Conditions::parse("")),
            (String::new(), Some(Conditions::default()))
        );
        for wrong in ["tier:fast", "above:x", "hours:5-4", "hours:0-10081", "plan:a", "flex"] {
            assert_eq!(Conditions::parse(wrong), None, "{wrong}");
        }
        let shown =
            Conditions { hours: Hours::parse(["sat"]), ..Conditions::parse("tier:batch above:5").unwrap() };
        assert_eq!(shown.to_string(), "batch, above 5 prompt tokens, sat 00:00 to sun 00:00 UTC");
    }

    #[test]
    fn overlap_is_an_equal_rank_for_one_call() {
        let parse = |text: &str| Conditions::parse(text).unwrap();
        let cases = [
            ("", "", true),
            ("tier:flex", "tier:flex", true),
            ("tier:flex", "tier:batch", false),
            ("above:5", "above:6", false),
            ("above:5", "tier:flex", false),
            ("hours:0-10", "hours:9-11", true),
            ("hours:0-10", "hours:10-11", false),
            ("tier:flex hours:0-10", "hours:0-10", false),
            ("above:5 hours:0-10", "above:5 hours:5-6", true),
        ];
        for (one, two, expected) in cases {
            assert_eq!(parse(one).overlap(&parse(two)), expected, "{one} | {two}");
            assert_eq!(parse(two).overlap(&parse(one)), expected, "{two} | {one}");
        }
    }
}
