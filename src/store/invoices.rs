//! Invoices: what was billed in a month.

use crate::db::{self, Tx, sql};
use crate::ids::OrganizationId;

/// How many invoices of an organization wait for money.
pub async fn open_count(tx: &mut Tx, organization_id: OrganizationId) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM invoices WHERE organization_id = $1 AND status = 'open'")
            .bind(organization_id)
            .one(tx)
            .await?;
    Ok(count)
}
