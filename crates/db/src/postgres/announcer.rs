//! Telling listeners of commits with changes.
//!
//! A message with a commit makes the server wake every listener, which costs it as much as a small change does. While change
//! comes upon change, one message in a while does: the first goes with its commit, and for those after it the connection that
//! listens sends one more, once the while is over. Whoever hears it reads all that is committed by then.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// What listeners listen to.
pub(super) const CHANNEL: &str = "tollkeeper_changes";
/// How long one message does for all commits.
const WHILE: Duration = Duration::from_millis(5);

/// What this process tells the others.
pub(super) struct Announcer {
    /// What it calls itself in its messages: it need not be woken by them.
    name: String,
    message: String,
    commit: String,
    told_at: Mutex<Option<Instant>>,
    owes: Notify,
    /// Whether there is a connection that sends what is owed.
    can_owe: AtomicBool,
}

impl Announcer {
    pub(super) fn new() -> Self {
        let name = format!("{:016x}", RandomState::new().build_hasher().finish());
        let message = format!("NOTIFY {CHANNEL}, '{name}'");
        let commit = format!("{message}; COMMIT");
        Self {
            name,
            message,
            commit,
            told_at: Mutex::default(),
            owes: Notify::new(),
            can_owe: AtomicBool::new(false),
        }
    }

    /// Whether a message with this text is this process's own.
    pub(super) fn is_own(&self, text: &str) -> bool {
        text == self.name
    }

    /// A commit that listeners hear of when, and only when, it is made; one message to the server.
    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// Whether a commit is to tell of itself; else somebody has just now, and [`Announcer::owe`] is called after the commit.
    pub(super) fn has_turn(&self) -> bool {
        !self.can_owe.load(Ordering::Relaxed) || self.waits_until().is_none()
    }

    /// Has the listening connection tell of commits that didn't. When it is lost meanwhile nobody is told, and finds out by
    /// looking.
    pub(super) fn owe(self: &Arc<Self>) -> Owing {
        Owing(Arc::clone(self))
    }

    /// Says that there is a connection that listens and sends what is owed, until this is dropped.
    pub(super) fn attend(&self) -> Attending<'_> {
        self.can_owe.store(true, Ordering::Relaxed);
        Attending(self)
    }

    /// What to send when something is owed and the while is over.
    pub(super) async fn next(&self) -> &str {
        self.owes.notified().await;
        // A commit that takes its turn meanwhile may still fail, so it doesn't do for those before it.
        while let Some(until) = self.waits_until() {
            sleep_until(until).await;
        }
        &self.message
    }

    /// When there is a turn again; `None` when there is one now, and then it is taken.
    fn waits_until(&self) -> Option<Instant> {
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = told_at.map(|at| at + WHILE).filter(|until| *until > now);
        if until.is_none() {
            *told_at = Some(now);
        }
        until
    }
}

/// That a message is owed once this is dropped: a commit that nobody waits for any more is made all the same.
pub(super) struct Owing(Arc<Announcer>);

impl Drop for Owing {
    fn drop(&mut self) {
        self.0.owes.notify_one();
    }
}

/// That there is a connection which sends what is owed.
pub(super) struct Attending<'a>(&'a Announcer);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        self.0.can_owe.store(false, Ordering::Relaxed);
    }
}
