//! The total usage of a project or an API key, as its answers show it.

use crate::Billing;
use crate::store::usage::totals::{self, Subject};
use kernel::error::Error;
use kernel::futures::BoxFuture;
use keys::access::KeyScope;
use tenants::access::ProjectScope;

pub use crate::store::usage::totals::Totals;

/// Returns all usage ever of a project, that of its deleted API keys and of people included.
///
/// # Errors
/// The database fails.
pub fn project<'a>(billing: &'a Billing, scope: &'a ProjectScope) -> BoxFuture<'a, Result<Totals, Error>> {
    Box::pin(async move {
        let subject = Subject::Project(scope.project_id());
        Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
    })
}

/// Returns all usage ever of an API key.
///
/// # Errors
/// The database fails.
pub fn api_key<'a>(billing: &'a Billing, scope: &'a KeyScope) -> BoxFuture<'a, Result<Totals, Error>> {
    Box::pin(async move {
        let subject = Subject::ApiKey(scope.api_key_id());
        Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
    })
}
