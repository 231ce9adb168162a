//! `/v1/organizations/{organization_id}/billing/balance-alert` (docs/contract/billing.md#balance-alert).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use billing::Billing;
use billing::balance_alerts::{self, BalanceAlert as Row};
use input::record;
use input::types::SignedAmount;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Nano;
use kernel::patch::Patch;
use kernel::version::Expected;
use tenants::access::OrgScope;
use web::input::{Body, NoInput};
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The alert of an organization's balance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BalanceAlert {
    /// The threshold; null if no alert is set.
    below: Option<Nano>,
    /// The time when the balance dropped below the threshold; null if the balance isn't below it.
    low_since: Option<Time>,
    /// The posted balance, excluding reserved amounts.
    balance: Nano,
    /// The currency's ISO 4217 code.
    currency: String,
}

impl From<Row> for BalanceAlert {
    fn from(row: Row) -> Self {
        let Row { below, low_since, balance, currency } = row;
        Self { below, low_since, balance, currency }
    }
}

record! {
    /// A merge patch of the alert (RFC 7396).
    #[derive(Debug)]
    pub struct UpdateBalanceAlert in Api {
        pub below: Patch<SignedAmount> = patch,
    }
}

pub const READ: Operation = Operation::new("get_balance_alert");

/// Get the balance alert.
pub async fn read(billing: Billing, scope: OrgScope, _: NoInput) -> Result<Enveloped<BalanceAlert>, Error> {
    let alert = balance_alerts::read(&billing, scope.organization_id()).await?;
    Ok(private(alert.into()))
}

pub const UPDATE: Operation = Operation {
    example: r#"{
  "below": 25
}"#,
    ..Operation::new("update_balance_alert")
};

/// Set the balance alert.
///
/// A null threshold removes the alert.
pub async fn update(
    billing: Billing,
    scope: OrgScope,
    Body(body): Body<UpdateBalanceAlert>,
) -> Result<Enveloped<BalanceAlert>, Error> {
    let alert = match body.below {
        Patch::Keep => balance_alerts::read(&billing, scope.organization_id()).await?,
        Patch::Clear => balance_alerts::update(&billing, &scope, &Expected::Any, None).await?,
        Patch::Set(below) => balance_alerts::update(&billing, &scope, &Expected::Any, Some(below.0)).await?,
    };
    Ok(private(alert.into()))
}
