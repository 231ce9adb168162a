//! A bounded queue of items for one path of the collector.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::client::Target;

/// Maximum number of queued items.
const CAPACITY: usize = 2_048;

/// A queue with its destination.
pub(crate) struct Outlet<T> {
    /// The name of the items, in the plural, for the log.
    pub what: &'static str,
    pub queue: mpsc::Sender<T>,
    /// Taken by the sending task.
    receiver: Mutex<Option<mpsc::Receiver<T>>>,
    pub target: Target,
    pub sent: AtomicU64,
    pub lost: Arc<AtomicU64>,
}

/// The state of an [`Outlet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Queued items.
    pub waiting: usize,
    /// Maximum number of queued items.
    pub max: usize,
    /// Items that the collector has accepted.
    pub sent: u64,
    /// Items that were dropped.
    pub lost: u64,
}

impl<T> Outlet<T> {
    pub fn new(what: &'static str, target: Target) -> Self {
        let (queue, receiver) = mpsc::channel(CAPACITY);
        let receiver = Mutex::new(Some(receiver));
        Self { what, queue, receiver, target, sent: AtomicU64::new(0), lost: Arc::default() }
    }

    /// Returns the receiving end of the queue; `None` if it was taken before.
    pub fn take_receiver(&self) -> Option<mpsc::Receiver<T>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn load(&self) -> Load {
        Load {
            waiting: CAPACITY.saturating_sub(self.queue.capacity()),
            max: CAPACITY,
            sent: self.sent.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}
