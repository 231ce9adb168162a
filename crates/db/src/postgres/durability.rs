//! Durability of commits against a crash of the server, independent of the role's settings.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::SimpleQueryMessage;

use super::session::{PoolMode, raise};

/// Makes every commit of the session durable. With a pooler in transaction mode, this applies only to the
/// current transaction. Logs a warning the first time that a setting had to be changed.
pub(super) async fn ensure(client: &ClientWrapper, pool_mode: PoolMode) -> Result<(), tokio_postgres::Error> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let text = match pool_mode {
        PoolMode::Session => raise!("false"),
        PoolMode::Transaction => raise!("true"),
    };
    let answer = client.simple_query(text).await?;
    let raised = answer.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_)));
    if raised && !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "`synchronous_commit` is below `on` for this database or role, so a crash could lose commits. \
             This server's own transactions use `on`; set it to `on` for the database or role as well"
        );
    }
    Ok(())
}

/// Returns `false` if the server doesn't sync to disk (`fsync = off`), which a session can't change.
pub(super) async fn syncs_to_disk(client: &ClientWrapper) -> Result<bool, tokio_postgres::Error> {
    let row = client.query_typed_one("SELECT current_setting('fsync') <> 'off'", &[]).await?;
    row.try_get(0)
}
