//! Listening for announced changes of other processes, and sending the delayed notifications of this one.

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

/// How long to wait before reconnecting. Changes are also found by polling.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Listens for notifications and sends delayed ones, until the future is dropped.
pub(super) async fn listen(connector: Connector, announcer: Arc<Announcer>, woken: Arc<Notify>) {
    loop {
        if let Err(error) = listen_once(&connector, &announcer, &woken).await {
            tracing::debug!("not listening for changes: {error}");
        }
        sleep(RETRY_DELAY).await;
    }
}

async fn listen_once(connector: &Connector, announcer: &Announcer, woken: &Notify) -> Result<(), Error> {
    let (client, mut connection) = connector.connect().await?;
    let commands = async {
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(|error| map_error(&error))?;
        // Changes may have been announced before `LISTEN`.
        woken.notify_one();
        let _sender = announcer.start_delayed();
        loop {
            client.batch_execute(announcer.next_notify().await).await.map_err(|error| map_error(&error))?;
        }
    };
    let messages = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            // Changes of this process were handled at their commit.
            if let AsyncMessage::Notification(notification) = message.map_err(|error| map_error(&error))?
                && !announcer.is_own(notification.payload())
            {
                woken.notify_one();
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = commands => ended,
        ended = messages => ended,
    }
}
