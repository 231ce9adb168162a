//! The Stripe account and its capabilities.

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
    /// The currency of its balance, in lower case.
    pub default_currency: Option<String>,
    /// Whether it can make charges.
    #[serde(default)]
    pub charges_enabled: bool,
    /// Whether Stripe pays out its balance.
    #[serde(default)]
    pub payouts_enabled: bool,
    /// The status of each capability by name, such as `card_payments`: `active`, `inactive`, or `pending`.
    #[serde(default)]
    pub capabilities: BTreeMap<String, String>,
}

impl Client {
    /// Returns the account that owns the key.
    pub async fn account(&self) -> Result<Account, Error> {
        self.get("account", &Query::new()).await
    }
}
