//! Connections that many tasks read through at once: the driver pipelines what they send.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::ClientWrapper;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::batch::{Entry, Lanes, Reply};
use super::connect::{Connector, drive};
use super::{ANSWER_PATIENCE, Failure, PATIENCE, answer_of, map_error, silent};
use crate::Error;
use crate::statement::{Answer, Statement, Want};

/// Every session's first statement: the server refuses one that would write. Not by a startup option, for one who connects is
/// to find the host that takes writes by asking whether a transaction may.
const READ_ONLY: &str = "SET default_transaction_read_only = on";

/// A few connections, used in turn.
pub(super) struct Shared {
    slots: Vec<Arc<Slot>>,
    next: AtomicUsize,
    lanes: Arc<Lanes>,
}

impl Shared {
    pub(super) fn new(connector: &Connector, connections: usize) -> Self {
        let slots = (0..connections).map(|_| Arc::new(Slot::new(connector.clone()))).collect();
        Self { slots, next: AtomicUsize::new(0), lanes: Arc::default() }
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.open_client().is_some()).count()
    }

    /// Reads that were answered together with others.
    pub(super) fn batched(&self) -> u64 {
        self.lanes.answered()
    }

    /// Runs a statement outside of any transaction.
    pub(super) async fn read(&self, statement: Statement, want: Want) -> Result<Answer, Failure> {
        let Some(place) = statement.place_in_batch(want).filter(|_| !self.slots.is_empty()) else {
            return self.read_alone(&statement, want).await;
        };
        match self.lanes.enter(&self.slots, place, statement) {
            Entry::Now(turn, statement) => turn.slot().read(&statement, want).await,
            Entry::Later(statement, reply) => match timeout(ANSWER_PATIENCE, reply).await {
                Ok(Ok(Reply::Found(row))) => Ok(Answer { changed: 0, rows: row.into_iter().collect() }),
                Ok(Ok(Reply::Failed(error))) => Err(Failure::Silent(error)),
                Ok(Ok(Reply::AskAlone) | Err(_)) => self.read_alone(&statement, want).await,
                Err(_) => Err(Failure::Silent(silent())),
            },
            Entry::Full => Err(Failure::Refused(Error::Unavailable("too many reads wait".to_owned()))),
        }
    }

    /// The same, in a statement of its own.
    pub(super) async fn read_alone(&self, statement: &Statement, want: Want) -> Result<Answer, Failure> {
        self.next_slot().map_err(Failure::Refused)?.read(statement, want).await
    }

    fn next_slot(&self) -> Result<&Arc<Slot>, Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len().max(1);
        self.slots.get(turn).ok_or_else(|| Error::Internal("no connections to read through".to_owned()))
    }
}

/// The place of one connection.
pub(super) struct Slot {
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

    /// Runs a statement by itself.
    pub(super) async fn read(&self, statement: &Statement, want: Want) -> Result<Answer, Failure> {
        let mut client = self.client().await.map_err(Failure::Refused)?;
        let mut answer = answer_of(&client, statement, want).await;
        if matches!(answer, Err(Failure::Gone(_))) {
            // It was closed under us. Nothing was changed by a read, so it may run again, once.
            self.discard(&client);
            client = self.client().await.map_err(Failure::Refused)?;
            answer = answer_of(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Stale(_))) {
            answer = answer_of(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Gone(_) | Failure::Silent(_))) {
            self.discard(&client);
        }
        answer.map_err(|failure| match failure {
            Failure::Refused(Error::ReadOnly(what)) => Failure::Refused(Error::Internal(format!(
                "a statement that writes was run on a read handle: {what}"
            ))),
            failure => failure,
        })
    }

    /// The connection, made anew when there is none or it is closed. One task connects; those that waited for
    /// it share its connection or its failure, so that an unreachable server isn't tried once a request.
    pub(super) async fn client(&self) -> Result<Arc<ClientWrapper>, Error> {
        match self.open_client() {
            Some(client) => Ok(client),
            // Boxed: no read is made to carry what connecting needs, which is rare and nested deeply.
            None => Box::pin(self.connected()).await,
        }
    }

    async fn connected(&self) -> Result<Arc<ClientWrapper>, Error> {
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
    pub(super) fn discard(&self, client: &Arc<ClientWrapper>) {
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
