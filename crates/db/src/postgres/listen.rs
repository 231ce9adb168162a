//! A connection that hears when a transaction with changes is committed, here or on another replica.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

use super::announcer::{Announcer, CHANNEL};
use super::connect::Connector;
use super::map_error;
use crate::Error;

/// How long to wait before a lost connection is made again; whoever needs to know polls meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// Listens, and tells what this process owes, until it is dropped.
pub(super) async fn listen(connector: Connector, announcer: Arc<Announcer>, woken: Arc<Notify>) {
    loop {
        if let Err(error) = listen_once(&connector, &announcer, &woken).await {
            tracing::debug!("not listening for changes: {error}");
        }
        sleep(RETRY).await;
    }
}

async fn listen_once(connector: &Connector, announcer: &Announcer, woken: &Notify) -> Result<(), Error> {
    let (client, mut connection) = connector.connect().await?;
    let order = async {
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(|error| map_error(&error))?;
        // What was announced before this connection heard anything.
        woken.notify_one();
        let _attending = announcer.attend();
        loop {
            client.batch_execute(announcer.next().await).await.map_err(|error| map_error(&error))?;
        }
    };
    let messages = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            // This process is told of its own changes at their commit.
            if let AsyncMessage::Notification(told) = message.map_err(|error| map_error(&error))?
                && !announcer.is_own(told.payload())
            {
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
