//! Invoices that Stripe creates for payments.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::Query;

/// A Stripe invoice.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Invoice {
    pub id: Option<String>,
    /// Stripe's page for the customer; `None` until it's finalized.
    pub hosted_invoice_url: Option<String>,
}

impl Client {
    pub async fn invoice(&self, id: &str) -> Result<Invoice, Error> {
        self.get(&path("invoices", id)?, &Query::new()).await
    }
}
