//! A connection that hears when a transaction with changes is committed, here or on another replica.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

use super::connect::Connector;
use super::map_error;
use crate::db::Error;

/// A commit that listeners hear of when, and only when, it is made; one message to the server.
pub(super) const ANNOUNCING_COMMIT: &str = "NOTIFY tollkeeper_changes; COMMIT";
const LISTEN: &str = "LISTEN tollkeeper_changes";
/// How long to wait before a lost connection is made again; whoever needs to know polls meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Listens until it is dropped.
pub(super) async fn listen(connector: Connector, woken: Arc<Notify>) {
    loop {
        if let Err(error) = listen_once(&connector, &woken).await {
            tracing::debug!("not listening for changes: {error}");
        }
        sleep(RETRY).await;
    }
}

async fn listen_once(connector: &Connector, woken: &Notify) -> Result<(), Error> {
    let (client, mut connection) = connector.connect().await?;
    let order = async {
        client.batch_execute(LISTEN).await.map_err(|error| map_error(&error))?;
        // What was announced before this connection heard anything.
        woken.notify_one();
        // The client is kept: its end would end the connection.
        pending().await
    };
    let messages = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(_) = message.map_err(|error| map_error(&error))? {
                woken.notify_one();
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = order => ended,
        ended = messages => ended,
    }
}
