//! The audit trail of the whole installation.

use kernel::error::Error;
pub use trail::{Action, AuditEntry, Filter};

use crate::Operators;

/// Returns the newest entries that match the filter, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(operators: &Operators, filter: &Filter) -> Result<Vec<AuditEntry>, Error> {
    Ok(trail::list(&mut operators.db.read().await?, filter).await?)
}
