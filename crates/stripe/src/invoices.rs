//! Invoices that Stripe makes for payments.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::Query;

/// An invoice of Stripe.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Invoice {
    pub id: Option<String>,
    /// The page of Stripe on which the customer sees it; none before it is finalized.
    pub hosted_invoice_url: Option<String>,
}

impl Client {
    pub async fn invoice(&self, id: &str) -> Result<Invoice, Error> {
        self.get(&path("invoices", id)?, &Query::new()).await
    }
}
