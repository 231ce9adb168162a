//! The total usage of a project or an API key, as its answers show it.

use crate::Billing;
use crate::store::usage::totals::{self, Subject};
use kernel::error::Error;
use keys::access::KeyScope;
use tenants::access::ProjectScope;

pub use crate::store::usage::totals::Totals;

/// Returns all usage ever of a project, that of its deleted API keys and of people included.
///
/// # Errors
/// The database fails.
pub async fn project(billing: &Billing, scope: &ProjectScope) -> Result<Totals, Error> {
    let subject = Subject::Project(scope.project_id());
    Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
}

/// Returns all usage ever of an API key.
///
/// # Errors
/// The database fails.
pub async fn api_key(billing: &Billing, scope: &KeyScope) -> Result<Totals, Error> {
    let subject = Subject::ApiKey(scope.api_key_id());
    Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
}
