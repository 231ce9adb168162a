//! Disputes: charges that a customer has questioned at their bank.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::Query;
use crate::payment_intents::{Charge, PaymentIntent};
use crate::values::{Created, Expandable, Identified, Metadata, Page, metadata};

/// The state of a dispute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisputeStatus {
    WarningNeedsResponse,
    WarningUnderReview,
    WarningClosed,
    NeedsResponse,
    UnderReview,
    Won,
    Lost,
    /// A dispute that was lost goes on: the bank has refused what the account has answered.
    AppealNeedsResponse,
    AppealUnderReview,
    /// It was settled before it became a dispute.
    Prevented,
    #[serde(other)]
    Other,
}

/// A dispute.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Dispute {
    pub id: String,
    pub status: DisputeStatus,
    /// The amount in dispute, in the minor unit of the charge's currency.
    pub amount: i64,
    pub currency: String,
    /// Why, such as `fraudulent`.
    pub reason: String,
    /// The time of its creation, in Unix seconds.
    pub created: i64,
    pub livemode: bool,
    pub charge: Expandable<Charge>,
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    /// What it has taken from the account's balance and brought back, in the currency of the account.
    #[serde(default)]
    pub balance_transactions: Vec<BalanceTransaction>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

impl Identified for Dispute {
    fn id(&self) -> &str {
        &self.id
    }
}

/// A movement of an account's balance.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct BalanceTransaction {
    pub id: String,
    /// The amount before fees, in the minor unit: negative if it was taken.
    pub amount: i64,
    pub fee: i64,
    pub net: i64,
    pub currency: String,
    /// The time of its creation, in Unix seconds.
    #[serde(default)]
    pub created: i64,
    /// The kind, such as `adjustment`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is for, such as `dispute` or `dispute_reversal`.
    pub reporting_category: String,
}

impl Client {
    pub async fn dispute(&self, id: &str) -> Result<Dispute, Error> {
        self.get(&path("disputes", id)?, &Query::new()).await
    }

    /// Returns disputes, the newest first; those of a payment if one is given.
    pub async fn disputes(
        &self,
        payment_intent: Option<&str>,
        created: &Created<'_>,
    ) -> Result<Page<Dispute>, Error> {
        let mut query = created.query();
        query.optional("payment_intent", payment_intent);
        self.get_page("disputes", &query).await
    }
}
