//! Connections that many tasks read through at once: the driver pipelines what they send.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::ClientWrapper;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::connect::{Connector, drive};
use super::{Failure, PATIENCE, answer_of, map_error};
use crate::db::Error;
use crate::db::statement::{Answer, Statement, Want};

/// Every session's first statement: the server refuses one that would write. Not by a startup option, for one who connects is
/// to find the host that takes writes by asking whether a transaction may.
const READ_ONLY: &str = "SET default_transaction_read_only = on";

/// A few connections, used in turn.
pub(super) struct Shared {
    slots: Vec<Slot>,
    next: AtomicUsize,
}

impl Shared {
    pub(super) fn new(connector: &Connector, connections: usize) -> Self {
        let slots = (0..connections).map(|_| Slot::new(connector.clone())).collect();
        Self { slots, next: AtomicUsize::new(0) }
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.open_client().is_some()).count()
    }

    /// Runs a statement outside of any transaction.
    pub(super) async fn read(&self, statement: &Statement, want: Want) -> Result<Answer, Failure> {
        let slot = self.next_slot().map_err(Failure::Refused)?;
        let mut client = slot.client().await.map_err(Failure::Refused)?;
        let mut answer = answer_of(&client, statement, want).await;
        if matches!(answer, Err(Failure::Gone(_))) {
            // It was closed under us. Nothing was changed by a read, so it may run again, once.
            slot.discard(&client);
            client = slot.client().await.map_err(Failure::Refused)?;
            answer = answer_of(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Stale(_))) {
            answer = answer_of(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Gone(_) | Failure::Silent(_))) {
            slot.discard(&client);
        }
        answer.map_err(|failure| match failure {
            Failure::Refused(Error::ReadOnly(what)) => Failure::Refused(Error::Internal(format!(
                "a statement that writes was run on a read handle: {what}"
            ))),
            failure => failure,
        })
    }

    fn next_slot(&self) -> Result<&Slot, Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len().max(1);
        self.slots.get(turn).ok_or_else(|| Error::Internal("no connections to read through".to_owned()))
    }
}

/// The place of one connection.
struct Slot {
    connector: Connector,
    client: RwLock<Option<Arc<ClientWrapper>>>,
    /// Held by the one task that connects.
    connecting: AsyncMutex<()>,
    /// Attempts that failed so far, and how the last one did.
    failures: AtomicU64,
    last_failure: Mutex<Option<Error>>,
}

impl Slot {
    fn new(connector: Connector) -> Self {
        Self {
            connector,
            client: RwLock::default(),
            connecting: AsyncMutex::default(),
            failures: AtomicU64::new(0),
            last_failure: Mutex::default(),
        }
    }

    /// The connection, made anew when there is none or it is closed. One task connects; those that waited for
    /// it share its connection or its failure, so that an unreachable server isn't tried once a request.
    async fn client(&self) -> Result<Arc<ClientWrapper>, Error> {
        if let Some(client) = self.open_client() {
            return Ok(client);
        }
        let failures = self.failures.load(Ordering::Acquire);
        let waited = timeout(PATIENCE, self.connecting.lock()).await;
        let _connecting = waited.map_err(|_| Error::Unavailable("connecting takes too long".to_owned()))?;
        if let Some(client) = self.open_client() {
            return Ok(client);
        }
        if self.failures.load(Ordering::Acquire) != failures
            && let Some(failure) = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
        {
            return Err(failure);
        }
        match connect(&self.connector).await {
            Ok(client) => {
                let client = Arc::new(client);
                *self.client.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&client));
                Ok(client)
            }
            Err(failure) => {
                *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure.clone());
                self.failures.fetch_add(1, Ordering::Release);
                Err(failure)
            }
        }
    }

    /// Forgets this connection, unless it has been replaced already.
    fn discard(&self, client: &Arc<ClientWrapper>) {
        let mut current = self.client.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, client)) {
            *current = None;
        }
    }

    fn open_client(&self) -> Option<Arc<ClientWrapper>> {
        let current = self.client.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|client| !client.is_closed()).map(Arc::clone)
    }
}

async fn connect(connector: &Connector) -> Result<ClientWrapper, Error> {
    let (client, connection) = connector.connect().await?;
    let client = ClientWrapper::new(client, drive(connection));
    let set = timeout(PATIENCE, client.batch_execute(READ_ONLY)).await;
    set.map_err(|_| Error::Unavailable("the server doesn't answer".to_owned()))?
        .map_err(|error| map_error(&error))?;
    Ok(client)
}
