//! Connections that many tasks share for reads. The driver pipelines their statements.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::ClientWrapper;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::connect::Connector;
use super::pipeline::{Commit, Pipeline};
use super::session::{self, Begin, PoolMode};
use super::{CONNECT_TIMEOUT, Failure, RESPONSE_TIMEOUT, types, unresponsive, with_timeout};
use crate::Error;
use crate::statement::{Answer, Statement, Want};

/// Up to a fixed number of connections. A statement uses the connection with the fewest statements in
/// progress. A connection is therefore opened only when all others are busy, and a hanging connection gets no
/// more statements.
pub(super) struct SharedConnections {
    slots: Vec<Slot>,
}

impl SharedConnections {
    /// Creates the connections without opening them. `begin` is the kind of their transactions, which only
    /// pool mode `transaction` needs.
    pub(super) fn new(connector: &Connector, begin: Begin, connections: usize) -> Self {
        let connector = connector.with_settings(session::READ_ONLY);
        let slots = (0..connections).map(|_| Slot::new(connector.clone(), begin)).collect();
        Self { slots }
    }

    /// Returns the number of open connections.
    pub(super) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.open_client().is_some()).count()
    }

    /// Closes all connections, once the statements in progress have ended.
    pub(super) fn close(&self) {
        for slot in &self.slots {
            *slot.client.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Runs a statement outside of any transaction.
    pub(super) async fn read(&self, statement: &Statement, want: Want) -> Result<Answer, Failure> {
        let slot = self.least_busy_slot().map_err(Failure::Refused)?;
        let _under_way = UnderWay::new(slot);
        slot.read(statement, want).await
    }

    /// Returns the first of the slots with the fewest statements in progress.
    fn least_busy_slot(&self) -> Result<&Slot, Error> {
        let least_busy = self.slots.iter().min_by_key(|slot| slot.under_way.load(Ordering::Relaxed));
        least_busy.ok_or_else(|| Error::Internal("no connections to read through".to_owned()))
    }
}

/// A statement in progress, counted until it ends or is canceled.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(slot: &'a Slot) -> Self {
        slot.under_way.fetch_add(1, Ordering::Relaxed);
        Self(&slot.under_way)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, reopened as needed.
struct Slot {
    connector: Connector,
    begin: Begin,
    /// The number of statements in progress on the connection.
    under_way: AtomicUsize,
    /// Locked while the messages of a transaction are sent.
    sending: Mutex<()>,
    client: RwLock<Option<Arc<ClientWrapper>>>,
    /// Locked by the task that connects.
    connecting: AsyncMutex<()>,
    /// Failed attempts to connect, and the error of the last one.
    failures: AtomicU64,
    last_failure: Mutex<Option<Error>>,
}

impl Slot {
    fn new(connector: Connector, begin: Begin) -> Self {
        Self {
            connector,
            begin,
            under_way: AtomicUsize::new(0),
            sending: Mutex::default(),
            client: RwLock::default(),
            connecting: AsyncMutex::default(),
            failures: AtomicU64::new(0),
            last_failure: Mutex::default(),
        }
    }

    /// Runs a statement.
    async fn read(&self, statement: &Statement, want: Want) -> Result<Answer, Failure> {
        let mut client = self.client().await.map_err(Failure::Refused)?;
        let mut answer = self.run(&client, statement, want).await;
        if matches!(answer, Err(Failure::Disconnected(_))) {
            // The connection was closed in the meantime. A read can safely be retried, and one retry is
            // enough.
            self.discard(&client);
            client = self.client().await.map_err(Failure::Refused)?;
            answer = self.run(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Stale(_))) {
            answer = self.run(&client, statement, want).await;
        }
        if matches!(answer, Err(Failure::Disconnected(_) | Failure::Unresponsive(_))) {
            self.discard(&client);
        }
        answer.map_err(|failure| match failure {
            Failure::Refused(Error::ReadOnly(what)) => Failure::Refused(Error::Internal(format!(
                "a statement that writes was run on a read handle: {what}"
            ))),
            failure => failure,
        })
    }

    async fn run(
        &self,
        client: &ClientWrapper,
        statement: &Statement,
        want: Want,
    ) -> Result<Answer, Failure> {
        match self.connector.pool_mode() {
            PoolMode::Session => with_timeout(RESPONSE_TIMEOUT, types::run(client, statement, want)).await,
            // Boxed, to keep its large future out of every read.
            PoolMode::Transaction => Box::pin(self.run_in_transaction(client, statement, want)).await,
        }
    }

    /// Runs a statement in a separate read-only transaction, which costs no additional round trip.
    async fn run_in_transaction(
        &self,
        client: &ClientWrapper,
        statement: &Statement,
        want: Want,
    ) -> Result<Answer, Failure> {
        let pipeline = Pipeline {
            begin: Some((self.begin.text(PoolMode::Transaction), RESPONSE_TIMEOUT)),
            statements: std::slice::from_ref(statement),
            want,
            commit: Commit::Yes,
        };
        let sent = pipeline.send(client, PoolMode::Transaction, Some(&self.sending));
        timeout(RESPONSE_TIMEOUT, sent).await.unwrap_or_else(|_| Err(Failure::Unresponsive(unresponsive())))
    }

    /// Returns the connection, opening it if needed. One task connects; the tasks that waited for it share
    /// its connection or its error, so that an unreachable server isn't tried once per request.
    async fn client(&self) -> Result<Arc<ClientWrapper>, Error> {
        match self.open_client() {
            Some(client) => Ok(client),
            // Boxed, to keep the large and rarely needed future of connecting out of every read.
            None => Box::pin(self.reconnect()).await,
        }
    }

    async fn reconnect(&self) -> Result<Arc<ClientWrapper>, Error> {
        let failures = self.failures.load(Ordering::Acquire);
        let waited = timeout(CONNECT_TIMEOUT, self.connecting.lock()).await;
        let _connecting = waited.map_err(|_| Error::Unavailable("connecting takes too long".to_owned()))?;
        if let Some(client) = self.open_client() {
            return Ok(client);
        }
        if self.failures.load(Ordering::Acquire) != failures
            && let Some(failure) = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
        {
            return Err(failure);
        }
        match self.connector.connect().await {
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

    /// Drops the connection, unless it has been replaced already.
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
