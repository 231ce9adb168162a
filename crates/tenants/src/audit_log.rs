//! The audit log of an organization, for its owners and admins.

use crate::access::OrgScope;
use crate::store;
use db::Page;
use kernel::error::{Detail, Error};
use kernel::futures::BoxFuture;

use super::{ListPage, Tenants};

pub use crate::store::audit_log::{Entry, Filter};
pub use trail::Action;

/// The maximum number of entries in an export.
const MAX_EXPORTED: usize = 10_000;

/// Returns one page of the matching entries, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(
    tenants: &Tenants,
    scope: &OrgScope,
    filter: &Filter,
    page: Page,
) -> Result<ListPage<Entry>, Error> {
    let mut tx = tenants.db().read().await?;
    let (total, rows) = store::audit_log::list(&mut tx, scope.organization_id(), filter, page).await?;
    Ok(ListPage { rows, total })
}

/// Returns all matching entries, newest first.
///
/// # Errors
/// 400 if more entries match than an export can have.
pub fn export<'a>(
    tenants: &'a Tenants,
    scope: &'a OrgScope,
    filter: &'a Filter,
) -> BoxFuture<'a, Result<Vec<Entry>, Error>> {
    Box::pin(async move {
        let limit = i64::try_from(MAX_EXPORTED).unwrap_or(i64::MAX).saturating_add(1);
        let mut tx = tenants.db().read().await?;
        let entries = store::audit_log::newest(&mut tx, scope.organization_id(), filter, limit).await?;
        if entries.len() > MAX_EXPORTED {
            let message = format!(
                "More than {MAX_EXPORTED} entries match: narrow the range with `start_date` and `end_date`."
            );
            let detail = Detail { param: "start_date".to_owned(), code: "too_many", message };
            return Err(Error::invalid(vec![detail]));
        }
        Ok(entries)
    })
}
