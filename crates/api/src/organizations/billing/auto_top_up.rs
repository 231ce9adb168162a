//! `/v1/organizations/{organization_id}/billing/auto-top-up` (docs/contract/payments.md#automatic-top-up).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use ::payments::Payments;
use ::payments::auto_top_ups::{self, AutoTopUp as Row, Change};
use input::record;
use input::types::{Amount, SignedAmount};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::money::Nano;
use kernel::patch::Patch;
use tenants::access::OrgScope;
use web::input::{Body, IfMatch, NoInput};
use web::reply::{Versioned, private_versioned};
use web::route::Operation;

/// The settings for charging the saved card automatically.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AutoTopUp {
    /// `true` if the saved card is charged automatically.
    enabled: bool,
    /// The card is charged when the available balance is below this amount.
    threshold: Nano,
    /// The available balance after a charge.
    restore_to: Nano,
    /// The maximum amount charged per calendar month (UTC), including taxes; null for no limit.
    monthly_cap: Option<Nano>,
    /// The reason why nothing is charged although top-up is enabled: `declined`, `authentication_required`,
    /// `monthly_cap`, `no_payment_method`, `tax_location`, `refunded` or `disputed`; null if the top-up isn't
    /// paused.
    paused_reason: Option<&'static str>,
    /// The time when the top-up resumes automatically; null if an owner has to turn it on again.
    resumes_at: Option<Time>,
    /// The number of declined charges since the last successful one.
    failures: i64,
}

impl From<Row> for AutoTopUp {
    fn from(row: Row) -> Self {
        Self {
            enabled: row.is_enabled,
            threshold: row.threshold,
            restore_to: row.restore_to,
            monthly_cap: row.monthly_cap,
            paused_reason: row.paused_reason.map(|reason| reason.as_str()),
            resumes_at: row.next_try_at,
            failures: row.failures,
        }
    }
}

record! {
    /// A merge patch of the automatic top-up (RFC 7396).
    #[derive(Debug)]
    pub struct UpdateAutoTopUp in Api {
        /// `true` to charge the saved card automatically; this also resumes a paused top-up.
        enabled: Option<bool> = change,
        threshold: Option<SignedAmount> = change,
        restore_to: Option<Amount> = change,
        monthly_cap: Patch<Amount> = patch,
    }
}

impl From<UpdateAutoTopUp> for Change {
    fn from(body: UpdateAutoTopUp) -> Self {
        Self {
            is_enabled: body.enabled,
            threshold: body.threshold.map(|amount| amount.0),
            restore_to: body.restore_to.map(|amount| amount.0),
            monthly_cap: body.monthly_cap.map(|amount| amount.0),
        }
    }
}

pub const READ: Operation = Operation::new("get_auto_top_up");

/// Get the automatic top-up.
pub async fn read(payments: Payments, scope: OrgScope, _: NoInput) -> Result<Versioned<AutoTopUp>, Error> {
    let row = auto_top_ups::read(&payments, scope.organization_id()).await?;
    Ok(private_versioned(row.version()?, row.into()))
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::NoPaymentMethod, Code::PaymentsDisabled],
    example: r#"{
  "enabled": true,
  "threshold": 10,
  "restore_to": 50,
  "monthly_cap": 500
}"#,
    ..Operation::new("update_auto_top_up")
};

/// Set the automatic top-up.
///
/// A merge patch: omitted fields don't change, and null removes the cap. `enabled: true` also resumes a
/// paused top-up.
pub async fn update(
    payments: Payments,
    scope: OrgScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateAutoTopUp>>,
) -> Result<Versioned<AutoTopUp>, Error> {
    let row = auto_top_ups::update(&payments, &scope, &expected, body.into()).await?;
    Ok(private_versioned(row.version()?, row.into()))
}
