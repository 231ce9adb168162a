//! `/v1/organizations/{organization_id}/billing/summary` (docs/contract/billing.md#summary).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use ::payments::cards::{self, SavedCard};
use billing::summary;
use billing::wallets::Wallet;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::{Nano, Pico};
use tenants::access::OrgScope;
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The balance and current usage of an organization.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BillingSummary")]
pub struct Summary {
    /// The current month.
    current_period: Period,
    /// The balance of the organization.
    balance: Balance,
    /// The saved card; null without one.
    payment_method: Option<PaymentMethod>,
    /// The plan.
    subscription: Subscription,
}

/// The current calendar month, UTC.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BillingPeriod")]
pub struct Period {
    /// The start of the month.
    start_date: Time,
    /// The end of the month, exclusive.
    end_date: Time,
    /// The usage so far at list price, minus volume discounts.
    total_amount: Pico,
    /// The currency's ISO 4217 code.
    currency: String,
    /// The state of the period.
    status: PeriodStatus,
}

/// The state of a billing period; the current one is always active.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BillingPeriodStatus")]
pub enum PeriodStatus {
    /// The period isn't over.
    Active,
}

/// The balance of the wallet.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Balance {
    /// The balance minus reserved money, without the credit limit; negative if the organization owes money.
    available: Nano,
    /// The money reserved for calls in progress.
    reserved: Nano,
    /// The currency's ISO 4217 code.
    currency: String,
}

impl Balance {
    /// Returns the balance of a wallet.
    pub fn of(wallet: Wallet) -> Self {
        Self { available: wallet.available(), reserved: wallet.reserved, currency: wallet.currency }
    }
}

/// A payment method.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PaymentMethod {
    /// The card network, such as `visa`.
    r#type: String,
    /// The last four digits of the card number.
    last4: String,
    /// The last month in which the card can be charged, as `MM/YY`: `12/30` is December 2030.
    expiry: String,
}

impl From<SavedCard> for PaymentMethod {
    fn from(card: SavedCard) -> Self {
        let SavedCard { brand, last4, exp_month, exp_year } = card;
        Self { r#type: brand, last4, expiry: format!("{exp_month:02}/{:02}", exp_year % 100) }
    }
}

/// The plan of an organization.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Subscription {
    /// Always `pay_as_you_go`.
    plan: String,
    /// The state of the subscription.
    status: SubscriptionStatus,
    /// The time when the current month is closed.
    next_billing_date: Time,
    /// The end of the current month, exclusive.
    end_date: Time,
}

/// The state of a subscription.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionStatus {
    /// No invoice is past due.
    Active,
    /// An invoice is past due.
    PastDue,
}

pub const SUMMARY: Operation = Operation::new("get_billing_summary");

/// Get the balance and this month's usage.
///
/// From the first day of a month, the response shows the new month, although the previous month is still open
/// for late usage.
pub async fn summary(api: Api, scope: OrgScope, _: NoInput) -> Result<Enveloped<Summary>, Error> {
    let found = summary::read(&api.billing, scope.organization_id()).await?;
    let card = cards::read(&api.payments, scope.organization_id()).await?;
    let (month, wallet) = (found.month, found.wallet);
    let status = if found.is_past_due { SubscriptionStatus::PastDue } else { SubscriptionStatus::Active };
    Ok(private(Summary {
        current_period: Period {
            start_date: month.start(),
            end_date: month.end(),
            total_amount: found.total,
            currency: wallet.currency.clone(),
            status: PeriodStatus::Active,
        },
        balance: Balance::of(wallet),
        payment_method: card.map(PaymentMethod::from),
        subscription: Subscription {
            plan: found.plan,
            status,
            next_billing_date: month.end(),
            end_date: month.end(),
        },
    }))
}
