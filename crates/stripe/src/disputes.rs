//! Disputes: charges that a customer disputed with their bank.

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
    /// A lost dispute continues: the bank rejected the account's response.
    AppealNeedsResponse,
    AppealUnderReview,
    /// Resolved before it became a dispute.
    Prevented,
    #[serde(other)]
    Other,
}

/// A dispute.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Dispute {
    pub id: String,
    pub status: DisputeStatus,
    /// The disputed amount, in the minor unit of the charge's currency.
    pub amount: i64,
    pub currency: String,
    /// The reason, such as `fraudulent`.
    pub reason: String,
    /// Creation time, in Unix seconds.
    pub created: i64,
    pub livemode: bool,
    pub charge: Expandable<Charge>,
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    /// Balance transactions that withdrew or returned money, in the account's currency.
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

/// A balance transaction.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct BalanceTransaction {
    pub id: String,
    /// The amount before fees, in the minor unit; negative for a withdrawal.
    pub amount: i64,
    pub fee: i64,
    pub net: i64,
    pub currency: String,
    /// Creation time, in Unix seconds.
    #[serde(default)]
    pub created: i64,
    /// The kind, such as `adjustment`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The purpose, such as `dispute` or `dispute_reversal`.
    pub reporting_category: String,
}

impl Client {
    pub async fn dispute(&self, id: &str) -> Result<Dispute, Error> {
        self.get(&path("disputes", id)?, &Query::new()).await
    }

    /// Returns disputes, newest first; only those of a payment if one is given.
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
