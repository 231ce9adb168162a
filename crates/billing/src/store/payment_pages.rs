//! Stripe's pages on which customers pay. They end in the transaction that makes them unnecessary. The crate
//! `payments` runs the tasks, and makes all other writes to these tables. Billing can't call `payments`,
//! because `payments` depends on billing.

use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{InvoiceId, OrganizationId};

/// The statement that requests the end of the pages of an invoice. `COALESCE` keeps SQLite from using the
/// index of all sessions.
pub const EXPIRE_OF_INVOICE: &str = "INSERT INTO stripe_tasks (kind, object_id, next_at)
     SELECT 'expire_session', session_id, CAST($3 AS BIGINT) FROM payments
     WHERE organization_id = $1 AND invoice_id = $2 AND status = 'open' AND COALESCE(session_id, '') <> ''
     ON CONFLICT (kind, object_id) DO NOTHING";

/// The statement that cancels the open payments of an invoice.
pub const CANCEL_OF_INVOICE: &str =
    "UPDATE payments SET status = 'canceled', failure_code = 'invoice_not_open', checkout_url = NULL,
         next_at = NULL, updated_at = $3
     WHERE organization_id = $1 AND invoice_id = $2 AND status = 'open'";

/// Cancels the open payments of an invoice of a locked wallet, and requests the end of their pages.
///
/// # Errors
/// The database fails.
pub async fn end_of_invoice(
    tx: &mut Tx,
    organization_id: OrganizationId,
    id: InvoiceId,
    now: Time,
) -> Result<(), db::Error> {
    for text in [EXPIRE_OF_INVOICE, CANCEL_OF_INVOICE] {
        sql(text).bind(organization_id).bind(id).bind(now).defer(tx).await?;
    }
    Ok(())
}

/// The statement that requests the end of the pages of an organization.
pub const EXPIRE_ALL: &str = "INSERT INTO stripe_tasks (kind, object_id, next_at)
     SELECT 'expire_session', session_id, CAST($2 AS BIGINT) FROM payments
     WHERE organization_id = $1 AND status IN ('open', 'action_required') AND COALESCE(session_id, '') <> ''
     ON CONFLICT (kind, object_id) DO NOTHING";

/// The statement that cancels the open payments of an organization.
pub const CANCEL_ALL: &str =
    "UPDATE payments SET status = 'canceled', failure_code = 'organization_deleted', checkout_url = NULL,
         next_at = NULL, updated_at = $2
     WHERE organization_id = $1 AND status IN ('open', 'action_required')";

/// Cancels the open payments of an organization that is deleted, and requests the end of their pages.
///
/// # Errors
/// The database fails.
pub async fn end_all(tx: &mut Tx, organization_id: OrganizationId, now: Time) -> Result<(), db::Error> {
    for text in [EXPIRE_ALL, CANCEL_ALL] {
        sql(text).bind(organization_id).bind(now).defer(tx).await?;
    }
    Ok(())
}
