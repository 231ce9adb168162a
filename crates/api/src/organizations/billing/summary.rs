//! `/v1/organizations/{organization_id}/billing/summary` (docs/contract/billing.md#summary).

use schemars::JsonSchema;
use serde::Serialize;

use billing::{Billing, summary};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::{Nano, Pico};
use tenants::access::OrgScope;
use web::input::NoInput;
use web::reply::{Enveloped, private};

/// How an organization stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Summary {
    current_period: Period,
    balance: Balance,
    /// None is stored.
    payment_method: Option<PaymentMethod>,
    subscription: Subscription,
}

/// The calendar month, UTC.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Period {
    start_date: Time,
    /// The first instant of the next month.
    end_date: Time,
    /// What was used so far at list price, less the volume discounts on it.
    total_amount: Pico,
    currency: String,
    status: PeriodStatus,
}

/// Where a billing period stands. The current one is always active: one that is closing is over.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PeriodStatus {
    /// It goes on.
    Active,
}

/// What is in the wallet.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Balance {
    /// What can be spent without credit; negative when money is owed.
    available: Nano,
    /// What calls that are under way may cost.
    reserved: Nano,
    currency: String,
}

/// How somebody pays.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PaymentMethod {
    r#type: String,
    last4: String,
    expiry: String,
}

/// The plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Subscription {
    plan: String,
    status: SubscriptionStatus,
    next_billing_date: Time,
    end_date: Time,
}

/// Where a subscription stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionStatus {
    /// Nothing is due.
    Active,
    /// An invoice waits for money.
    PastDue,
}

/// Get the balance and this month's usage.
///
/// On the first day of a month, while the one before is still open for late usage, the new month is shown.
pub async fn summary(billing: Billing, scope: OrgScope, _: NoInput) -> Result<Enveloped<Summary>, Error> {
    let found = summary::read(&billing, scope.organization_id()).await?;
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
        balance: Balance {
            available: wallet.available(),
            reserved: wallet.reserved,
            currency: wallet.currency,
        },
        payment_method: None,
        subscription: Subscription {
            plan: found.plan,
            status,
            next_billing_date: month.end(),
            end_date: month.end(),
        },
    }))
}
