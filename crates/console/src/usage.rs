//! The shared part of both usage pages: their filters, and one report as a chart and a table. The CSV file is
//! made of the same report.

use std::collections::BTreeMap;

use api::Api;
use api::csv::CsvFile;
use api::organizations::usage_reports::csv;
use api::paging::PageQuery;
use billing::rules::periods::DateBound;
use billing::rules::usage_groups::{Groups, Period};
use billing::usage_reports::{Group, Query, Report, UsageByKind};
use input::fields::{Field, Fields, Record};
use kernel::clock::Day;
use kernel::error::{Detail, Error};
use kernel::money::Pico;
use kernel::page::Page;

use crate::charts::{Chart, Series};
use crate::choice;
use crate::days::{Days, END_BEFORE_START, LAST_BEFORE_FIRST};
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::listing::Listing;
use crate::show::{self, Column};

pub const LABELS: Labels = &[
    ("range", "Time"),
    ("start_date", "First day"),
    ("end_date", "Last day"),
    ("by", "By"),
    ("show", "Show"),
    ("period", "A bar for each"),
];

choice! {
    /// The days of a report.
    pub enum Span {
        ThisMonth = ("this_month", "This month"),
        LastMonth = ("last_month", "Last month"),
        SevenDays = ("7_days", "Last 7 days"),
        ThirtyDays = ("30_days", "Last 30 days"),
        NinetyDays = ("90_days", "Last 90 days"),
        Custom = ("custom", "From … to …"),
    }
}

choice! {
    /// What the usage of an organization is told apart by.
    pub enum OrganizationBy {
        Model = ("model", "Model"),
        Project = ("project", "Project"),
        Key = ("key", "API key"),
    }
}

choice! {
    /// What the usage of a project is told apart by.
    pub enum ProjectBy {
        Model = ("model", "Model"),
        Key = ("key", "API key"),
    }
}

choice! {
    /// What the bars show.
    pub enum Measure {
        Amount = ("amount", "Amount"),
        Tokens = ("tokens", "Tokens"),
        Requests = ("requests", "Requests"),
    }
}

choice! {
    /// The time of one bar.
    pub enum PeriodChoice {
        Day = ("day", "Day"),
        Week = ("week", "Week"),
        Month = ("month", "Month"),
    }
}

/// What usage is told apart by.
pub trait By: Field + Copy + Send + Into<&'static str> + 'static {
    /// Every word with its label.
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
            // The names of keys are unique in their project only.
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

/// Returns the name of a key, or of a person who called without one.
fn caller(group: &Group) -> String {
    let name = group.api_key_name.as_deref().unwrap_or_default();
    if group.user_id.is_some() { format!("{name} (without a key)") } else { name.to_owned() }
}

/// The filters of a usage page.
#[derive(Clone, Copy, Debug)]
pub struct UsageFilters<B> {
    span: Span,
    /// The days, if they are those between two dates.
    days: Days,
    by: B,
    measure: Measure,
    period: PeriodChoice,
    page: Page,
}

impl<B: By> Default for UsageFilters<B> {
    fn default() -> Self {
        Self {
            span: Span::ThisMonth,
            days: Days::default(),
            by: B::MODEL,
            measure: Measure::Amount,
            period: PeriodChoice::Day,
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
        Some(Self { span: span?, days: days?, by: by?, measure: measure?, period: period?, page: page?.0 })
    }
}

impl<B: By> UsageFilters<B> {
    /// Returns the question for billing; `today` is in UTC.
    pub fn query(&self, today: Day) -> Query {
        let (start, end) = self.bounds(today);
        let bound = |day: Option<Day>| day.map(DateBound::Date);
        Query {
            start: bound(start),
            end: bound(end),
            groups: self.groups(),
            needs_currency: true,
            needs_names: true,
        }
    }

    /// Returns the first day, and the day after the last one.
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

    fn groups(&self) -> Groups {
        let period = match self.period {
            PeriodChoice::Day => Period::Day,
            PeriodChoice::Week => Period::Week,
            PeriodChoice::Month => Period::Month,
        };
        self.by.groups(period)
    }

    /// Returns a report as a file; `subject` is part of its name.
    pub fn file(&self, report: &Report, subject: &str) -> CsvFile {
        let name = csv::file_name(subject, report.range);
        csv::file(name, true, self.groups(), &report.rows, report.currency.as_deref().unwrap_or_default())
    }
}

/// Returns an error of a report as an error of the form: days there are named from the first to the last.
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

/// A report as a page shows it.
#[derive(Debug)]
pub struct UsageView {
    /// The filters.
    pub form: FormView,
    /// Every choice of what usage is told apart by.
    pub choices: &'static [(&'static str, &'static str)],
    /// The report; `None` if the filters have a mistake.
    pub report: Option<ReportView>,
}

/// The figures of a report.
#[derive(Debug)]
pub struct ReportView {
    /// The first and the last day.
    pub first: Day,
    pub last: Day,
    /// The sums of the whole report.
    pub amount: String,
    pub requests: String,
    pub prompt_tokens: String,
    pub completion_tokens: String,
    pub currency: String,
    pub caption: String,
    pub chart: Chart,
    /// One page of the rows.
    pub rows: Vec<RowView>,
    pub listing: Listing,
    /// The query of the same question.
    pub question: String,
    /// The word for what usage is told apart by.
    pub by: &'static str,
}

/// The usage of a group in a period.
#[derive(Debug)]
pub struct RowView {
    pub period: String,
    pub name: String,
    pub requests: String,
    pub prompt_tokens: String,
    pub completion_tokens: String,
    pub amount: String,
}

impl UsageView {
    /// Returns a report with its filters.
    pub fn new<B: By>(filters: UsageFilters<B>, report: &Report, sent: &[(String, String)]) -> Self {
        let form = FormView::new(LABELS)
            .with("range", filters.span.word())
            .with("by", Into::<&'static str>::into(filters.by))
            .with("show", filters.measure.word())
            .with("period", filters.period.word());
        let (first, last) = (report.range.start, report.range.end_exclusive.plus(-1));
        let form = if filters.span == Span::Custom {
            form.with("start_date", first).with("end_date", last)
        } else {
            form
        };
        Self { form, choices: B::CHOICES, report: Some(ReportView::new(filters, report, sent)) }
    }

    /// Returns filters that have a mistake.
    pub fn refused<B: By>(form: FormView) -> Self {
        Self { form, choices: B::CHOICES, report: None }
    }

    /// `true` if the days are those between two dates.
    pub fn is_custom(&self) -> bool {
        self.form.has("range", Span::Custom.word())
    }
}

impl ReportView {
    fn new<B: By>(filters: UsageFilters<B>, report: &Report, sent: &[(String, String)]) -> Self {
        let currency = report.currency.clone().unwrap_or_default();
        let amounts = report.rows.iter().map(|row| row.usage.amount());
        let column = Column::new(&currency, amounts.chain([report.total.amount()]));
        let by = label_of::<B>(filters.by);
        let (first, last) = (report.range.start, report.range.end_exclusive.plus(-1).max(report.range.start));
        let caption = format!(
            "{} a {} by {}",
            match filters.measure {
                Measure::Amount => format!("Amount in {currency}"),
                other => other.label().to_owned(),
            },
            filters.period.label().to_lowercase(),
            by_words(by),
        );
        let total = report.total;
        let total_listed = i64::try_from(report.rows.len()).unwrap_or(i64::MAX);
        Self {
            first,
            last,
            amount: show::money(total.amount(), &currency),
            requests: show::number(total.requests()),
            prompt_tokens: show::number(total.prompt_tokens()),
            completion_tokens: show::number(total.completion_tokens()),
            chart: chart(filters, report, &caption, &column),
            rows: rows(filters, report, &column),
            listing: Listing::new(filters.page, total_listed, sent),
            question: links::question(sent, LABELS),
            currency,
            caption,
            by,
        }
    }

    /// `true` if nothing was used.
    pub fn is_empty(&self) -> bool {
        self.listing.is_empty()
    }
}

/// Returns the label of a choice.
fn label_of<B: By>(by: B) -> &'static str {
    let word: &'static str = by.into();
    B::CHOICES.iter().find(|(other, _)| *other == word).map_or("", |(_, label)| label)
}

/// Returns a label within a sentence.
fn by_words(label: &str) -> String {
    if label.starts_with("API") { label.to_owned() } else { label.to_lowercase() }
}

/// Returns the name of a period, which begins at this day.
fn period_name(period: PeriodChoice, date: Day) -> String {
    match period {
        PeriodChoice::Day => date.to_string(),
        PeriodChoice::Week => format!("Week of {date}"),
        PeriodChoice::Month => date.month().to_string(),
    }
}

/// Returns a value of the usage that the bars show, in its smallest unit.
fn value(measure: Measure, usage: &UsageByKind) -> i128 {
    match measure {
        Measure::Amount => usage.amount().units(),
        Measure::Tokens => usage.prompt_tokens() + usage.completion_tokens(),
        Measure::Requests => usage.requests(),
    }
}

fn chart<B: By>(filters: UsageFilters<B>, report: &Report, caption: &str, column: &Column) -> Chart {
    let period = filters.groups().period;
    let days = report.range.start.unix_days()..report.range.end_exclusive.unix_days();
    let mut dates: Vec<Day> = days.map(|day| period.first_day(Day::from_unix_days(day))).collect();
    dates.dedup();
    let mut series: BTreeMap<&Group, Series> = BTreeMap::new();
    for row in &report.rows {
        let series = series
            .entry(&row.group)
            .or_insert_with(|| Series { name: filters.by.name(&row.group), values: vec![0; dates.len()] });
        let index = dates.binary_search(&row.date).ok();
        if let Some(sum) = index.and_then(|index| series.values.get_mut(index)) {
            *sum += value(filters.measure, &row.usage);
        }
    }
    let figure = |value: i128| match filters.measure {
        Measure::Amount => column.write(Pico::from_units(value)),
        Measure::Tokens | Measure::Requests => show::number(value),
    };
    let columns: Vec<_> = dates.iter().map(|date| period_name(filters.period, *date)).collect();
    let label = format!(
        "{caption}, {} to {}. The table below has all figures.",
        report.range.start,
        report.range.end_exclusive.plus(-1)
    );
    Chart::new(label, &columns, series.into_values().collect(), &figure)
}

/// Returns the rows of one page.
fn rows<B: By>(filters: UsageFilters<B>, report: &Report, column: &Column) -> Vec<RowView> {
    let size = usize::try_from(filters.page.page_size).unwrap_or(0);
    let before = usize::try_from(filters.page.page.saturating_sub(1)).unwrap_or(0).saturating_mul(size);
    let rows = report.rows.iter().skip(before).take(size);
    let view = rows.map(|row| RowView {
        period: period_name(filters.period, row.date),
        name: filters.by.name(&row.group),
        requests: show::number(row.usage.requests()),
        prompt_tokens: show::number(row.usage.prompt_tokens()),
        completion_tokens: show::number(row.usage.completion_tokens()),
        amount: column.write(row.usage.amount()),
    });
    view.collect()
}

/// Returns the chart of the amounts of an organization's last 30 days by model.
pub fn trend(report: &Report) -> (String, Chart) {
    let filters = UsageFilters::<OrganizationBy> { span: Span::ThirtyDays, ..UsageFilters::default() };
    let currency = report.currency.as_deref().unwrap_or_default();
    let caption = format!("Amount in {currency} a day by model");
    let column = Column::new(currency, report.rows.iter().map(|row| row.usage.amount()));
    let chart = chart(filters, report, &caption, &column);
    (caption, chart)
}

/// Returns the question for [`trend`].
pub fn trend_query(today: Day) -> Query {
    UsageFilters::<OrganizationBy> { span: Span::ThirtyDays, ..UsageFilters::default() }.query(today)
}
