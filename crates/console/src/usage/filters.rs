//! The filters of a usage page.

use api::Api;
use api::csv::CsvFile;
use api::organizations::usage_reports::csv;
use api::paging::PageQuery;
use billing::rules::periods::DateBound;
use billing::rules::usage_groups::{Groups, Period};
use billing::usage_reports::{Group, Query, Report};
use input::fields::{Field, Fields, Record};
use input::types::Text;
use kernel::clock::Day;
use kernel::error::{Detail, Error};
use kernel::naming;
use kernel::page::Page;

use crate::choice;
use crate::days::{Days, END_BEFORE_START, LAST_BEFORE_FIRST};
use crate::form_view::Labels;

pub const LABELS: Labels = &[
    ("range", "Period"),
    ("start_date", "First day"),
    ("end_date", "Last day"),
    ("by", "Group by"),
    ("show", "Show"),
    ("period", "Granularity"),
    ("search", "Filter by name"),
];

choice! {
    /// The range of days of a report.
    pub enum Span {
        ThisMonth = ("this_month", "This month"),
        LastMonth = ("last_month", "Last month"),
        SevenDays = ("7_days", "Last 7 days"),
        ThirtyDays = ("30_days", "Last 30 days"),
        NinetyDays = ("90_days", "Last 90 days"),
        Custom = ("custom", "Custom range"),
    }
}

choice! {
    /// The dimension by which the usage of an organization is grouped.
    pub enum OrganizationBy {
        Model = ("model", "Model"),
        Project = ("project", "Project"),
        Key = ("key", "API key"),
    }
}

choice! {
    /// The dimension by which the usage of a project is grouped.
    pub enum ProjectBy {
        Model = ("model", "Model"),
        Key = ("key", "API key"),
    }
}

choice! {
    /// The measure that the bars of the chart show.
    pub enum Measure {
        Amount = ("amount", "Amount"),
        Tokens = ("tokens", "Tokens"),
        Requests = ("requests", "Requests"),
    }
}

choice! {
    /// The period of each bar.
    pub enum PeriodChoice {
        Day = ("day", "Day"),
        Week = ("week", "Week"),
        Month = ("month", "Month"),
    }
}

/// A dimension by which usage is grouped.
pub trait By: Field + Copy + Send + Into<&'static str> + 'static {
    /// The words of all dimensions, with their labels.
    const CHOICES: &[(&'static str, &'static str)];
    const MODEL: Self;
    /// Returns the columns to group by.
    fn groups(self, period: Period) -> Groups;
    /// Returns the name of a group on the page.
    fn name(self, group: &Group) -> String;
}

impl By for OrganizationBy {
    const CHOICES: &[(&'static str, &'static str)] = Self::OPTIONS;
    const MODEL: Self = Self::Model;
    fn groups(self, period: Period) -> Groups {
        Groups {
            period,
            model: self == Self::Model,
            // The names of keys are unique only in their project.
            project: self != Self::Model,
            api_key: self == Self::Key,
        }
    }
    fn name(self, group: &Group) -> String {
        let project = group.project_name.as_ref().or(group.project_id.as_ref());
        let project = project.map(String::as_str).unwrap_or_default();
        match self {
            Self::Model => group.model.clone().unwrap_or_default(),
            Self::Project => project.to_owned(),
            Self::Key => format!("{} · {project}", caller(group)),
        }
    }
}

impl By for ProjectBy {
    const CHOICES: &[(&'static str, &'static str)] = Self::OPTIONS;
    const MODEL: Self = Self::Model;
    fn groups(self, period: Period) -> Groups {
        Groups { period, model: self == Self::Model, project: false, api_key: self == Self::Key }
    }
    fn name(self, group: &Group) -> String {
        match self {
            Self::Model => group.model.clone().unwrap_or_default(),
            Self::Key => caller(group),
        }
    }
}

/// Returns the name of a key, or of a user who called without a key.
fn caller(group: &Group) -> String {
    let name = group.api_key_name.as_deref().unwrap_or_default();
    if group.user_id.is_some() { format!("{name} (without a key)") } else { name.to_owned() }
}

/// The filters of a usage page.
#[derive(Clone, Debug)]
pub struct UsageFilters<B> {
    pub span: Span,
    /// The first and last day of a custom range.
    pub days: Days,
    pub by: B,
    pub measure: Measure,
    pub period: PeriodChoice,
    /// The folded text that the name of a group must contain; empty for all groups.
    pub search_folded: String,
    /// The page of the table.
    pub page: Page,
}

impl<B: By> Default for UsageFilters<B> {
    fn default() -> Self {
        Self {
            span: Span::ThisMonth,
            days: Days::default(),
            by: B::MODEL,
            measure: Measure::Amount,
            period: PeriodChoice::Day,
            search_folded: String::new(),
            page: Page { page: 1, page_size: 20 },
        }
    }
}

impl<B: By> Record<Api> for UsageFilters<B> {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let span = fields.or("range", Span::ThisMonth);
        let days = Days::read(fields);
        let by = fields.or("by", B::MODEL);
        let measure = fields.or("show", Measure::Amount);
        let period = fields.or("period", PeriodChoice::Day);
        let search = fields.optional::<Text<200>>("search");
        Some(Self {
            span: span?,
            days: days?,
            by: by?,
            measure: measure?,
            period: period?,
            search_folded: search?.map(|text| naming::fold(text.0.trim())).unwrap_or_default(),
            page: page?.0,
        })
    }
}

impl<B: By> UsageFilters<B> {
    /// Returns the query for the billing crate. `today` is in UTC.
    pub fn query(&self, today: Day) -> Query {
        let (start, end) = self.bounds(today);
        let bound = |day: Option<Day>| day.map(DateBound::Date);
        let groups = self.groups();
        Query {
            start: bound(start),
            end: bound(end),
            needs_currency: true,
            needs_names: groups.project || groups.api_key,
            ..Query::by(groups)
        }
    }

    /// Returns the rows of a report whose names contain the text.
    ///
    /// # Errors
    /// Those of [`Report::retain`].
    pub fn apply(&self, mut report: Report) -> Result<Report, Error> {
        if !self.search_folded.is_empty() {
            report.retain(|group| naming::fold(&self.by.name(group)).contains(&self.search_folded))?;
        }
        Ok(report)
    }

    /// Returns the first day, and the day after the last day.
    fn bounds(&self, today: Day) -> (Option<Day>, Option<Day>) {
        let days = |count: i64| (Some(today.plus(1 - count)), Some(today.plus(1)));
        let month = today.month_start();
        match self.span {
            Span::ThisMonth => (Some(month), Some(month.next_month_start())),
            Span::LastMonth => (Some(month.plus(-1).month_start()), Some(month)),
            Span::SevenDays => days(7),
            Span::ThirtyDays => days(30),
            Span::NinetyDays => days(90),
            Span::Custom => (self.days.first, self.days.end_exclusive()),
        }
    }

    /// Returns the dimensions to group by.
    pub fn groups(&self) -> Groups {
        let period = match self.period {
            PeriodChoice::Day => Period::Day,
            PeriodChoice::Week => Period::Week,
            PeriodChoice::Month => Period::Month,
        };
        self.by.groups(period)
    }

    /// Returns a report as a file; `subject` is part of its name.
    ///
    /// # Errors
    /// Those of [`Report::retain`].
    pub fn file(&self, report: Report, subject: &str) -> Result<CsvFile, Error> {
        let report = self.apply(report)?;
        let name = csv::file_name(subject, report.range);
        let currency = report.currency.as_deref().unwrap_or_default();
        Ok(csv::file(name, true, self.groups(), &report, currency))
    }
}

/// Returns an error of a report as an error of the form, whose range includes the last day.
pub fn of_form(error: Error) -> Error {
    let mut error = error;
    for Detail { code, message, .. } in &mut error.details {
        match *code {
            END_BEFORE_START => LAST_BEFORE_FIRST.clone_into(message),
            "range_too_long" => "At most 366 days can be shown at once.".clone_into(message),
            _ => {}
        }
    }
    error
}
