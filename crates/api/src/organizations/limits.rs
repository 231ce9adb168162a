//! `/v1/organizations/{organization_id}/limits` (docs/contract/billing.md#read-the-limits).

use schemars::JsonSchema;
use serde::Serialize;

use super::billing::summary::Balance;
use billing::{Billing, limits};
use kernel::error::Error;
use kernel::money::Nano;
use tenants::access::OrgScope;
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The limits of an organization's usage and spending.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationLimits {
    /// The limits of all available models.
    models: Vec<ModelLimits>,
    /// The amount by which the balance may go below zero.
    credit_limit: Nano,
    /// The balance of the organization.
    balance: Balance,
}

/// The limits of a model. They apply to each organization separately.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelLimits {
    /// The model's id.
    id: String,
    /// The maximum number of calls per minute.
    max_requests_per_min: u32,
    /// The maximum number of concurrent calls.
    max_concurrent_requests: u32,
    /// The maximum number of tokens per request.
    max_tokens: i64,
}

pub const READ: Operation = Operation::new("get_organization_limits");

/// Get the limits of an organization.
///
/// Every member may read the limits.
pub async fn read(
    billing: Billing,
    scope: OrgScope,
    _: NoInput,
) -> Result<Enveloped<OrganizationLimits>, Error> {
    let limits::Limits { models, wallet, credit_limit, .. } =
        limits::read(&billing, scope.organization_id()).await?;
    let models = models.iter().map(|model| ModelLimits {
        id: model.id.clone(),
        max_requests_per_min: model.max_requests_per_min,
        max_concurrent_requests: model.max_concurrent_requests,
        max_tokens: model.max_tokens,
    });
    Ok(private(OrganizationLimits { models: models.collect(), credit_limit, balance: Balance::of(wallet) }))
}
