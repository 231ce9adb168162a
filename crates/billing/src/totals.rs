//! The total usage of a project or an API key, for their API responses.

use crate::Billing;
use crate::store::usage::totals::{self, Subject};
use kernel::error::Error;
use kernel::futures::BoxFuture;
use keys::access::KeyScope;
use tenants::access::ProjectScope;

pub use crate::store::usage::totals::Totals;

/// Returns the total usage of a project, including that of its deleted API keys and of users.
///
/// # Errors
/// The database fails.
pub fn project<'a>(billing: &'a Billing, scope: &'a ProjectScope) -> BoxFuture<'a, Result<Totals, Error>> {
    Box::pin(async move {
        let subject = Subject::Project(scope.project_id());
        Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
    })
}

/// Returns the total usage of an API key.
///
/// # Errors
/// The database fails.
pub fn api_key<'a>(billing: &'a Billing, scope: &'a KeyScope) -> BoxFuture<'a, Result<Totals, Error>> {
    Box::pin(async move {
        let subject = Subject::ApiKey(scope.api_key_id());
        Ok(totals::get(&mut billing.db().read().await?, scope.organization_id(), subject).await?)
    })
}
