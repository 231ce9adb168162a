//! Finds the primary server.
//!
//! After a failover, the old primary may still run and accept writes, for example if only its cluster manager
//! has died. Each promotion begins a timeline with a higher number. Among several servers that accept writes,
//! the one with the highest timeline is therefore the primary, and a server below the highest known timeline
//! isn't used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::error::DbError;

/// Selects the name of the file that the WAL is written to, which begins with the timeline; null on a
/// standby.
pub(super) const WAL_FILE: &str =
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END";
/// The server function that reports a commit whose wait for its standby was canceled. It identifies the
/// notice, because the server's messages are in its own language.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";
/// The time for which a comparison of all hosts is valid.
const CONFIRMED: Duration = Duration::from_secs(3);
/// The minimum time between two log lines about an outdated server.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// The current primary of a database, as known to all connections.
#[derive(Default)]
pub(super) struct Primary {
    known: Mutex<Known>,
    /// The highest timeline so far; 0 before the first.
    newest: watch::Sender<u32>,
    /// The number of commits whose wait for a standby was canceled.
    unconfirmed_commits: AtomicU64,
}

#[derive(Default)]
struct Known {
    /// The server with the highest timeline so far.
    newest: Option<Server>,
    /// The time at which a comparison of all hosts of the URL confirmed it.
    confirmed_at: Option<Instant>,
    complained_at: Option<Instant>,
}

/// A server that accepts writes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Server {
    host: String,
    timeline: u32,
}

impl Primary {
    /// Admits a server that accepts writes. `timeline` is `None` if the server doesn't report it.
    ///
    /// # Errors
    /// The reason not to use it: another server has been promoted since.
    pub(super) fn admit(&self, host: &str, timeline: Option<u32>) -> Result<(), String> {
        let Some(timeline) = timeline else { return Ok(()) };
        let mut known = self.known();
        match known.newest.clone() {
            Some(newest) if newest.timeline > timeline => {
                let now = Instant::now();
                let why = format!(
                    "{host} takes writes at timeline {timeline}, but {} was promoted to timeline {}",
                    newest.host, newest.timeline
                );
                if known.complained_at.is_none_or(|at| now - at >= COMPLAINT_INTERVAL) {
                    known.complained_at = Some(now);
                    tracing::error!(
                        "an outdated primary isn't used: {why}. Stop it, or make it a standby: writes to it are lost. \
                         If you have replaced the database, restart this server"
                    );
                }
                Err(why)
            }
            Some(newest) if newest.host == host && newest.timeline == timeline => Ok(()),
            before => {
                match before {
                    None => tracing::info!("the primary is {host}, timeline {timeline}"),
                    Some(Server { host: old, timeline: before }) => {
                        tracing::info!(
                            "the primary is now {host}, timeline {timeline} (before: {old}, timeline {before})"
                        );
                    }
                }
                known.newest = Some(Server { host: host.to_owned(), timeline });
                self.newest.send_replace(timeline);
                Ok(())
            }
        }
    }

    /// Accepts the primary that a comparison of all hosts has found. Returns `true` if it differs from the
    /// previous primary.
    pub(super) fn confirm(&self, host: &str, timeline: u32) -> bool {
        let before = self.timeline();
        if self.admit(host, Some(timeline)).is_err() {
            return false;
        }
        self.known().confirmed_at = Some(Instant::now());
        before.is_some_and(|before| before < timeline)
    }

    /// Returns the host of the primary, if all hosts were recently compared.
    pub(super) fn confirmed_host(&self) -> Option<String> {
        let known = self.known();
        let is_confirmed = known.confirmed_at.is_some_and(|at| at.elapsed() < CONFIRMED);
        known.newest.as_ref().filter(|_| is_confirmed).map(|newest| newest.host.clone())
    }

    /// Waits until a higher timeline than this one is known.
    pub(super) async fn outdated(&self, timeline: u32) {
        let mut newest = self.newest.subscribe();
        // The sender lives as long as `self`.
        newest.wait_for(|newest| *newest > timeline).await.map(drop).unwrap_or_default();
    }

    /// Notes a timeline that another replica writes to. Returns `true` if it is higher than all previous
    /// ones.
    pub(super) fn note_timeline(&self, timeline: u32) -> bool {
        let mut known = self.known();
        let is_newer = known.newest.as_ref().is_some_and(|newest| newest.timeline < timeline);
        if is_newer {
            known.newest = Some(Server { host: "another server".to_owned(), timeline });
            known.confirmed_at = None;
            self.newest.send_replace(timeline);
        }
        is_newer
    }

    /// Returns the highest timeline so far.
    pub(super) fn timeline(&self) -> Option<u32> {
        self.known().newest.as_ref().map(|newest| newest.timeline)
    }

    /// Handles a notice from the server.
    pub(super) fn take_notice(&self, host: &str, notice: &DbError) {
        if notice.routine() != Some(WAIT_FOR_STANDBY) {
            return;
        }
        self.unconfirmed_commits.fetch_add(1, Ordering::SeqCst);
        tracing::error!(
            host,
            "a commit was canceled while it waited for its standby, so a failover may lose it. The \
             request gets a 503, and counts once if it is sent again. Don't cancel such commits, start the standby: {}",
            notice.message()
        );
    }

    /// Returns the number of commits so far whose wait for a standby was canceled. The server sends the
    /// notice about such a commit before the commit's result.
    pub(super) fn unconfirmed_commits(&self) -> u64 {
        self.unconfirmed_commits.load(Ordering::SeqCst)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the timeline of a file of the WAL: its first eight digits, in hexadecimal.
pub(super) fn timeline_of(wal_file: &str) -> Option<u32> {
    u32::from_str_radix(wal_file.get(..8)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_are_the_first_digits_of_a_file() {
        assert_eq!(timeline_of("000000010000000000000001"), Some(1));
        assert_eq!(timeline_of("0000001A000000FF00000003"), Some(26));
        for odd in ["", "0000001", "xxxxxxxx0000000000000001"] {
            assert_eq!(timeline_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn server_below_the_highest_timeline_is_not_used() {
        let primary = Primary::default();
        // A server that doesn't report its timeline is accepted.
        primary.admit("a:1", None).unwrap();
        assert_eq!(primary.timeline(), None);
        primary.admit("a:1", Some(11)).unwrap();
        primary.admit("b:1", Some(12)).unwrap();
        let why = primary.admit("a:1", Some(11)).unwrap_err();
        assert!(
            why.contains("a:1") && why.contains("11") && why.contains("b:1") && why.contains("12"),
            "{why}"
        );
        primary.admit("b:1", Some(12)).unwrap();
        primary.admit("a:1", Some(13)).unwrap();
        assert_eq!(primary.timeline(), Some(13));
        // Another replica has seen a later timeline.
        assert!(!primary.note_timeline(13));
        assert!(primary.note_timeline(14));
        primary.admit("a:1", Some(13)).unwrap_err();
        primary.admit("c:1", Some(14)).unwrap();
    }

    #[tokio::test]
    async fn connections_to_a_server_that_was_replaced_end() {
        let primary = Primary::default();
        primary.admit("a:1", Some(11)).unwrap();
        assert_eq!(primary.confirmed_host(), None, "not all hosts were compared yet");
        assert!(!primary.confirm("a:1", 11));
        assert_eq!(primary.confirmed_host().as_deref(), Some("a:1"));
        let mut outdated = Box::pin(primary.outdated(11));
        assert!(futures_util::FutureExt::now_or_never(&mut outdated).is_none());
        assert!(primary.confirm("b:1", 12));
        outdated.await;
        assert!(!primary.confirm("a:1", 11), "an outdated primary isn't confirmed");
        assert_eq!(primary.confirmed_host().as_deref(), Some("b:1"));
        assert!(primary.note_timeline(13));
        assert_eq!(primary.confirmed_host(), None, "the host of the primary is unknown");
    }
}
