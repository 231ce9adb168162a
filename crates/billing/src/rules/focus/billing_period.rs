//! The dataset of billing periods.

use kernel::clock::{Month, Time};
use kernel::csv::{self, Cell};

use super::{first_instant, instant};

/// The columns of a file.
pub const COLUMNS: [&str; 6] = [
    "BillingPeriodCreated",
    "BillingPeriodEnd",
    "BillingPeriodLastUpdated",
    "BillingPeriodStart",
    "BillingPeriodStatus",
    "InvoiceIssuerName",
];

/// A month of an issuer of invoices, for one organization or for several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BillingPeriod {
    pub month: Month,
    pub issuer: String,
    pub created_at: Time,
    /// The time at which the period was closed; `None` while it is open.
    pub closed_at: Option<Time>,
}

impl BillingPeriod {
    /// Merges two periods into one for the organizations of both. The merged period is open until it is
    /// closed for all of these organizations.
    #[must_use]
    pub fn merge(self, other: &Self) -> Self {
        let closed_at = self.closed_at.zip(other.closed_at).map(|(one, other)| one.max(other));
        Self { created_at: self.created_at.min(other.created_at), closed_at, ..self }
    }

    /// Returns the line of CSV, in the order of [`COLUMNS`].
    pub fn line(&self) -> String {
        let status = if self.closed_at.is_some() { "Closed" } else { "Open" };
        let mut text = String::new();
        csv::add_line(
            &mut text,
            [
                Cell::value(instant(self.created_at)),
                Cell::value(first_instant(self.month.plus(1).first_day())),
                Cell::value(instant(self.closed_at.unwrap_or(self.created_at))),
                Cell::value(first_instant(self.month.first_day())),
                Cell::value(status),
                Cell::text(&self.issuer),
            ],
        );
        text
    }
}
