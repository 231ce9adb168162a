//! `/v1/organizations/{organization_id}/billing/credits` (docs/contract/billing.md#list-credits).

use schemars::JsonSchema;
use serde::Serialize;

use crate::paging::{PageInfo, PageQuery};
use billing::{Billing, credits};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::CreditId;
use kernel::money::Nano;
use tenants::access::OrgScope;
use web::input::Query;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// A page of credits.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreditPage {
    /// The credits of this page.
    credits: Vec<Credit>,
    #[serde(flatten)]
    page: PageInfo,
}

/// Credit that was bought, granted or refunded.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Credit {
    /// The credit's id.
    id: CreditId,
    amount: Nano,
    /// The remaining amount. An expired credit keeps its amount until a background job ends it.
    remaining: Nano,
    /// The currency's ISO 4217 code.
    currency: String,
    /// The reference, unique within the organization.
    reference: String,
    /// `purchase`, `grant`, `payment`, `discount`, `correction` or `void`.
    kind: &'static str,
    /// The time when the credit was created.
    created_at: Time,
    /// The time at which the credit expires; null if it never expires.
    expires_at: Option<Time>,
}

pub const LIST: Operation = Operation::new("list_credits");

/// List credits.
///
/// The newest come first. Used-up and expired credits are included.
pub async fn list(
    billing: Billing,
    scope: OrgScope,
    Query(PageQuery(page)): Query<PageQuery>,
) -> Result<Enveloped<CreditPage>, Error> {
    let listed = credits::list(&billing, scope.organization_id(), page).await?;
    let credit = |credit: credits::Credit| Credit {
        id: credit.id,
        amount: credit.amount,
        remaining: credit.remaining,
        currency: listed.currency.clone(),
        reference: credit.reference,
        kind: credit.source.as_str(),
        created_at: credit.created_at,
        expires_at: credit.expires_at,
    };
    Ok(private(CreditPage {
        credits: listed.credits.into_iter().map(credit).collect(),
        page: PageInfo::new(listed.total, page),
    }))
}
