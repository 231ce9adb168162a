//! That what the service has answered survives a crash of the server, whatever the role's settings are.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::SimpleQueryMessage;

/// Raises a setting under which a commit is answered before it is on disk, here and on the standbys that
/// `synchronous_standby_names` asks for. What is stricter, `remote_apply`, stays.
const RAISE: &str = "SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')";

/// Makes every commit of this session durable; the log says once that the setting was another.
///
/// # Errors
/// The server's.
pub(super) async fn ensure(client: &ClientWrapper) -> Result<(), tokio_postgres::Error> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let answer = client.simple_query(RAISE).await?;
    let raised = answer.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_)));
    if raised && !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "the database or the role has a `synchronous_commit` below `on`, under which a crash loses what was answered: \
             it is `on` in this server's sessions; set it there too"
        );
    }
    Ok(())
}

/// Returns `true` if the server waits for the disk at all. A session can't change that.
///
/// # Errors
/// The server's.
pub(super) async fn syncs_to_disk(client: &ClientWrapper) -> Result<bool, tokio_postgres::Error> {
    let row = client.query_one("SELECT current_setting('fsync') <> 'off'", &[]).await?;
    row.try_get(0)
}
