//! The account: what it may do.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::form::Query;

/// An account.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Account {
    pub id: String,
    /// ISO 3166 code.
    pub country: Option<String>,
    /// The currency in which its balance is kept, in lower case.
    pub default_currency: Option<String>,
    /// Whether it may charge.
    #[serde(default)]
    pub charges_enabled: bool,
    /// Whether Stripe pays its balance out.
    #[serde(default)]
    pub payouts_enabled: bool,
    /// The states of its capabilities by their names, such as `card_payments`: `active`, `inactive` or `pending`.
    #[serde(default)]
    pub capabilities: BTreeMap<String, String>,
}

impl Client {
    /// Returns the account of the key.
    pub async fn account(&self) -> Result<Account, Error> {
        self.get("account", &Query::new()).await
    }
}
