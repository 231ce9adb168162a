//! The common part of both usage pages: their filters, and the report as a chart and a table. The CSV file
//! contains the same report.

mod filters;
mod view;

pub use filters::{
    By, LABELS, Measure, OrganizationBy, PeriodChoice, ProjectBy, Span, UsageFilters, of_form,
};
pub use view::{ReportView, RowView, UsageView, key_trend, trend, trend_query};
