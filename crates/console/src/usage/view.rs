//! A report as a page shows it: filters, chart and table.

use std::collections::BTreeMap;

use billing::usage_reports::{Group, Query, Report, UsageByKind};
use kernel::clock::Day;

use super::filters::{By, LABELS, Measure, OrganizationBy, PeriodChoice, Span, UsageFilters};
use crate::charts::{Chart, Series, Unit};
use crate::form_view::FormView;
use crate::links;
use crate::listing::Listing;
use crate::show::{self, Column, Money};

/// A report as a page shows it.
#[derive(Debug)]
pub struct UsageView {
    /// The filters.
    pub form: FormView,
    /// The choices of dimensions to group by.
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
    pub amount: Money,
    pub requests: String,
    pub prompt_tokens: String,
    pub completion_tokens: String,
    pub currency: String,
    pub caption: String,
    pub chart: Chart,
    /// The rows of this page.
    pub rows: Vec<RowView>,
    pub listing: Listing,
    /// The query string with the same filters.
    pub question: String,
    /// The name of the dimension that usage is grouped by.
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
    pub amount: Money,
}

impl UsageView {
    /// Returns a report with its filters.
    pub fn new<B: By>(filters: &UsageFilters<B>, report: &Report, sent: &[(String, String)]) -> Self {
        let form = FormView::new(LABELS)
            .with("range", filters.span.word())
            .with("by", Into::<&'static str>::into(filters.by))
            .with("show", filters.measure.word())
            .with("period", filters.period.word())
            .with("search", sent.iter().find(|(name, _)| name == "search").map_or("", |(_, value)| value));
        let (first, last) = (report.range.start, report.range.end_exclusive.plus(-1));
        let form = if filters.span == Span::Custom {
            form.with("start_date", first.to_string()).with("end_date", last.to_string())
        } else {
            form
        };
        Self { form, choices: B::CHOICES, report: Some(ReportView::new(filters, report, sent)) }
    }

    /// Returns filters that have a mistake.
    pub fn refused<B: By>(form: FormView) -> Self {
        Self { form, choices: B::CHOICES, report: None }
    }

    /// Returns `true` if the range has a custom first and last day.
    pub fn is_custom(&self) -> bool {
        self.form.has("range", Span::Custom.word())
    }
}

impl ReportView {
    fn new<B: By>(filters: &UsageFilters<B>, report: &Report, sent: &[(String, String)]) -> Self {
        let currency = report.currency.clone().unwrap_or_default();
        let amounts = report.rows.iter().map(|row| row.usage.amount());
        let column = Column::new(&currency, amounts.chain([report.total.amount()]));
        let by = label_of::<B>(filters.by);
        let (first, last) = (report.range.start, report.range.end_exclusive.plus(-1).max(report.range.start));
        let caption = format!(
            "{} per {} by {}",
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
            chart: chart(filters, report, &caption, &currency),
            rows: rows(filters, report, &column),
            listing: Listing::new(filters.page, total_listed, sent),
            question: links::question(sent, LABELS),
            currency,
            caption,
            by,
        }
    }

    /// Returns `true` if nothing was used.
    pub fn is_empty(&self) -> bool {
        self.listing.is_empty()
    }
}

/// Returns the label of a choice.
fn label_of<B: By>(by: B) -> &'static str {
    let word: &'static str = by.into();
    B::CHOICES.iter().find(|(other, _)| *other == word).map_or("", |(_, label)| label)
}

/// Returns a label in the form that it has within a sentence.
fn by_words(label: &str) -> String {
    if label.starts_with("API") { label.to_owned() } else { label.to_lowercase() }
}

/// Returns the name of the period that begins at this day.
fn period_name(period: PeriodChoice, date: Day) -> String {
    match period {
        PeriodChoice::Day => show::day(date),
        PeriodChoice::Week => format!("Week of {}", show::day(date)),
        PeriodChoice::Month => show::month(date.month()),
    }
}

/// Returns the value that the bars show for this usage, in its smallest unit.
fn value(measure: Measure, usage: &UsageByKind) -> i128 {
    match measure {
        Measure::Amount => usage.amount().units(),
        Measure::Tokens => usage.prompt_tokens() + usage.completion_tokens(),
        Measure::Requests => usage.requests(),
    }
}

fn chart<B: By>(filters: &UsageFilters<B>, report: &Report, caption: &str, currency: &str) -> Chart {
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
    let unit = match filters.measure {
        Measure::Amount => Unit::Pico(currency),
        Measure::Tokens | Measure::Requests => Unit::Count,
    };
    let columns: Vec<_> = dates.iter().map(|date| period_name(filters.period, *date)).collect();
    let label = format!(
        "{caption}, {} to {}. The table below has all figures.",
        show::day(report.range.start),
        show::day(report.range.end_exclusive.plus(-1))
    );
    Chart::new(label, &columns, series.into_values().collect(), unit)
}

/// Returns the rows of one page.
fn rows<B: By>(filters: &UsageFilters<B>, report: &Report, column: &Column) -> Vec<RowView> {
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
    let caption = format!("Daily cost by model ({currency})");
    let chart = chart(&filters, report, &caption, currency);
    (caption, chart)
}

/// Returns the chart of the amounts of an API key by day.
pub fn key_trend(report: &Report, currency: &str) -> Chart {
    let days = report.range.start.unix_days()..report.range.end_exclusive.unix_days();
    let dates: Vec<Day> = days.map(Day::from_unix_days).collect();
    let mut values = vec![0; dates.len()];
    for row in &report.rows {
        let index = dates.binary_search(&row.date).ok();
        if let Some(value) = index.and_then(|index| values.get_mut(index)) {
            *value += row.usage.amount().units();
        }
    }
    let columns: Vec<_> = dates.iter().map(show::day).collect();
    let label = "Daily cost. The table below has all figures.".to_owned();
    let series = Series { name: "Amount".to_owned(), values };
    Chart::new(label, &columns, vec![series], Unit::Pico(currency))
}

/// Returns the query for [`trend`].
pub fn trend_query(today: Day) -> Query {
    UsageFilters::<OrganizationBy> { span: Span::ThirtyDays, ..UsageFilters::default() }.query(today)
}
