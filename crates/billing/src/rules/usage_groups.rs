//! The groups of a usage report: `group_by` (docs/contract/usage.md#groups).

use kernel::clock::Day;

/// The period that a row covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// A UTC day.
    Day,
    /// Monday to Sunday.
    Week,
    /// A calendar month.
    Month,
}

impl Period {
    /// Returns the first day of the period that contains this day. It is the `date` of the row, even if the
    /// report begins later.
    pub fn first_day(self, day: Day) -> Day {
        match self {
            Self::Day => day,
            // 1970-01-01 was a Thursday.
            Self::Week => day.plus(-(day.unix_days().saturating_add(3)).rem_euclid(7)),
            Self::Month => day.month_start(),
        }
    }
}

/// The columns by which usage is grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    pub period: Period,
    pub model: bool,
    pub project: bool,
    pub api_key: bool,
}

/// The subject of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Organization,
    /// A project, always grouped by API key.
    Project,
}

impl Subject {
    /// Returns the accepted values of `group_by`.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Organization => &["day", "week", "month", "model", "project", "api_key"],
            Self::Project => &["day", "week", "month", "model", "api_key"],
        }
    }

    /// Returns the groups of a report without `group_by`: by day.
    pub const fn by_day(self) -> Groups {
        let api_key = matches!(self, Self::Project);
        Groups { period: Period::Day, model: false, project: false, api_key }
    }
}

/// The error of a value of `group_by`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The index of the value, from 0.
    pub index: usize,
    /// A stable code in snake case.
    pub code: &'static str,
    /// A sentence without its subject, the name of the field.
    pub message: String,
}

/// Returns the groups with these names; without a period, by day.
///
/// # Errors
/// The first name that is unknown, repeated, or a second period.
pub fn parse(words: &[&str], subject: Subject) -> Result<Groups, Refusal> {
    let mut groups = subject.by_day();
    let mut time = None;
    for (index, word) in words.iter().enumerate() {
        let refuse = |code, message: String| Err(Refusal { index, code, message });
        if !subject.words().contains(word) {
            let known: Vec<_> = subject.words().iter().map(|word| format!("`{word}`")).collect();
            let message = format!("must consist of {}, separated by commas", known.join(", "));
            return refuse("unknown_value", message);
        }
        if words.iter().take(index).any(|other| other == word) {
            return refuse("duplicate_value", format!("must not name `{word}` twice"));
        }
        let period = match *word {
            "model" => {
                groups.model = true;
                continue;
            }
            "project" => {
                groups.project = true;
                continue;
            }
            "api_key" => {
                groups.api_key = true;
                continue;
            }
            "week" => Period::Week,
            "month" => Period::Month,
            _ => Period::Day,
        };
        if let Some(other) = time.replace(word) {
            let message =
                format!("must name one of `day`, `week` and `month`, not both `{other}` and `{word}`");
            return refuse("several_periods", message);
        }
        groups.period = period;
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_begins_on_monday_or_the_first() {
        let first = |period: Period, day| period.first_day(Day::parse(day).unwrap()).to_string();
        let cases = [
            ("2026-03-09", "2026-03-09", "2026-03-01"),
            ("2026-03-15", "2026-03-09", "2026-03-01"),
            ("2026-03-16", "2026-03-16", "2026-03-01"),
            ("2026-03-01", "2026-02-23", "2026-03-01"),
            ("2026-01-01", "2025-12-29", "2026-01-01"),
            ("2024-02-29", "2024-02-26", "2024-02-01"),
            ("1970-01-01", "1969-12-29", "1970-01-01"),
            ("1969-12-28", "1969-12-22", "1969-12-01"),
        ];
        for (day, monday, month) in cases {
            assert_eq!(first(Period::Day, day), day);
            assert_eq!(first(Period::Week, day), monday, "{day}");
            assert_eq!(first(Period::Month, day), month, "{day}");
        }
    }

    #[test]
    fn group_names_are_parsed_or_refused() {
        let ask = |words: &str, subject| {
            let words: Vec<_> = words.split(',').collect();
            parse(&words, subject).map_err(|refusal| format!("{} {}", refusal.index, refusal.code))
        };
        let (all, one) = (Subject::Organization, Subject::Project);
        let groups = |period, model, project, api_key| Ok(Groups { period, model, project, api_key });
        assert_eq!(ask("day", all), Ok(all.by_day()));
        assert_eq!(ask("model", all), groups(Period::Day, true, false, false));
        assert_eq!(ask("api_key,week,project,model", all), groups(Period::Week, true, true, true));
        assert_eq!(ask("month", one), groups(Period::Month, false, false, true));
        assert_eq!(ask("api_key,day", one), ask("day", one));
        let refused = [
            ("hour", all, "0 unknown_value"),
            ("day,Model", all, "1 unknown_value"),
            ("day,project", one, "1 unknown_value"),
            ("", all, "0 unknown_value"),
            ("day,", all, "1 unknown_value"),
            ("model,day,model", all, "2 duplicate_value"),
            ("day,day", all, "1 duplicate_value"),
            ("week,model,month", all, "2 several_periods"),
        ];
        for (words, subject, problem) in refused {
            assert_eq!(ask(words, subject), Err(problem.to_owned()), "{words}");
        }
    }
}
