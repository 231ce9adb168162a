//! Notification of other processes about commits with announced changes.
//!
//! A notification wakes every listener, which costs the server as much as a small change does. So there is at
//! most one per [`MIN_INTERVAL`]: the first change notifies with its commit, and for those after it the
//! listening connection sends one more at the end of the interval. Listeners then read all that is committed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The channel of `LISTEN` and `NOTIFY`.
pub(super) const CHANNEL: &str = "tollkeeper_changes";
/// Minimum time between notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// Limits and sends the notifications of this process.
pub(super) struct Announcer {
    /// The payload, by which this process recognizes its own notifications.
    name: String,
    notify: String,
    notify_and_commit: String,
    last_at: Mutex<Option<Instant>>,
    delayed: Notify,
    /// A connection sends delayed notifications.
    can_delay: AtomicBool,
}

impl Announcer {
    pub(super) fn new() -> Self {
        let name = format!("{:016x}", RandomState::new().build_hasher().finish());
        let notify = format!("NOTIFY {CHANNEL}, '{name}'");
        let notify_and_commit = format!("{notify}; COMMIT");
        Self {
            name,
            notify,
            notify_and_commit,
            last_at: Mutex::default(),
            delayed: Notify::new(),
            can_delay: AtomicBool::new(false),
        }
    }

    /// Returns `true` for the payload of this process.
    pub(super) fn is_own(&self, payload: &str) -> bool {
        payload == self.name
    }

    /// A commit that notifies if, and only if, it succeeds.
    pub(super) fn notify_and_commit(&self) -> &str {
        &self.notify_and_commit
    }

    /// Returns `true` if a commit must notify itself. Otherwise call [`Announcer::notify_later`].
    pub(super) fn is_due(&self) -> bool {
        !self.can_delay.load(Ordering::Relaxed) || self.wait_until().is_none()
    }

    /// Lets the listening connection notify of a commit, once the result is dropped. If that connection is
    /// lost, other processes find the change by polling.
    pub(super) fn notify_later(self: &Arc<Self>) -> DelayedNotify {
        DelayedNotify(Arc::clone(self))
    }

    /// Enables delayed notifications until the result is dropped. The caller sends those of
    /// [`Announcer::next_notify`].
    pub(super) fn start_delayed(&self) -> DelayedSender<'_> {
        self.can_delay.store(true, Ordering::Relaxed);
        DelayedSender(self)
    }

    /// Waits until a delayed notification is due, and returns it.
    pub(super) async fn next_notify(&self) -> &str {
        self.delayed.notified().await;
        // A commit that notifies itself meanwhile may still fail, so this notification is sent anyway.
        while let Some(until) = self.wait_until() {
            sleep_until(until).await;
        }
        &self.notify
    }

    /// Returns the end of the current interval. If there is none, starts one and returns `None`.
    fn wait_until(&self) -> Option<Instant> {
        let mut last_at = self.last_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = last_at.map(|at| at + MIN_INTERVAL).filter(|until| *until > now);
        if until.is_none() {
            *last_at = Some(now);
        }
        until
    }
}

/// Requests a delayed notification when it is dropped: also by a cancelled caller, whose commit may still
/// happen.
pub(super) struct DelayedNotify(Arc<Announcer>);

impl Drop for DelayedNotify {
    fn drop(&mut self) {
        self.0.delayed.notify_one();
    }
}

/// A connection that sends delayed notifications.
pub(super) struct DelayedSender<'a>(&'a Announcer);

impl Drop for DelayedSender<'_> {
    fn drop(&mut self) {
        self.0.can_delay.store(false, Ordering::Relaxed);
    }
}
