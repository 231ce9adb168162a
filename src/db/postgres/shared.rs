//! Connections that many tasks read through at once: the driver pipelines what they send.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use deadpool_postgres::ClientWrapper;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use tokio_postgres::{Config, NoTls};

use super::{PATIENCE, map_error};
use crate::db::Error;

/// A few connections, used in turn.
pub(super) struct Shared {
    slots: Vec<Slot>,
    next: AtomicUsize,
}

impl Shared {
    pub(super) fn new(config: &Config, connections: usize) -> Self {
        let slots = (0..connections).map(|_| Slot::new(config.clone())).collect();
        Self { slots, next: AtomicUsize::new(0) }
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.slots.iter().filter(|slot| slot.open_client().is_some()).count()
    }

    pub(super) fn next_slot(&self) -> Result<&Slot, Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len().max(1);
        self.slots.get(turn).ok_or_else(|| Error::Internal("no connections to read through".to_owned()))
    }
}

/// The place of one connection.
pub(super) struct Slot {
    config: Config,
    client: RwLock<Option<Arc<ClientWrapper>>>,
    /// Held by the one task that connects.
    connecting: AsyncMutex<()>,
    /// Attempts that failed so far, and how the last one did.
    failures: AtomicU64,
    last_failure: Mutex<Option<Error>>,
}

impl Slot {
    fn new(config: Config) -> Self {
        Self {
            config,
            client: RwLock::default(),
            connecting: AsyncMutex::default(),
            failures: AtomicU64::new(0),
            last_failure: Mutex::default(),
        }
    }

    /// The connection, made anew when there is none or it is closed. One task connects; those that waited for
    /// it share its connection or its failure, so that an unreachable server isn't tried once a request.
    pub(super) async fn client(&self) -> Result<Arc<ClientWrapper>, Error> {
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
        match connect(&self.config).await {
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

async fn connect(config: &Config) -> Result<ClientWrapper, Error> {
    let connected = timeout(PATIENCE, config.connect(NoTls)).await;
    let (client, connection) = connected
        .map_err(|_| Error::Unavailable("the server doesn't answer".to_owned()))?
        .map_err(|error| map_error(&error))?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!("a connection to the database ended: {error}");
        }
    });
    Ok(ClientWrapper::new(client, task))
}
