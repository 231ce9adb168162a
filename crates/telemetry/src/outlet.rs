//! A bounded queue of what is to leave for the collector by one of its paths.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::client::Target;

/// How much may wait to be sent.
const CAPACITY: usize = 2_048;

/// The queue, and where it leads.
pub(crate) struct Outlet<T> {
    /// In the plural, for the log.
    pub what: &'static str,
    pub queue: mpsc::Sender<T>,
    /// Taken by the one who sends.
    waiting: Mutex<Option<mpsc::Receiver<T>>>,
    pub target: Target,
    pub sent: AtomicU64,
    pub lost: Arc<AtomicU64>,
}

/// How it is with an outlet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// How much waits to be sent.
    pub waiting: usize,
    /// The most that may.
    pub most: usize,
    /// How much the collector has taken.
    pub sent: u64,
    /// How much was let go of.
    pub lost: u64,
}

impl<T> Outlet<T> {
    pub fn new(what: &'static str, target: Target) -> Self {
        let (queue, waiting) = mpsc::channel(CAPACITY);
        let waiting = Mutex::new(Some(waiting));
        Self { what, queue, waiting, target, sent: AtomicU64::new(0), lost: Arc::default() }
    }

    /// The other end of the queue; there is one.
    pub fn take(&self) -> Option<mpsc::Receiver<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn load(&self) -> Load {
        Load {
            waiting: CAPACITY.saturating_sub(self.queue.capacity()),
            most: CAPACITY,
            sent: self.sent.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}
