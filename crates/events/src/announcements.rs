//! The subjects that the operator's events have announced. A subject is announced only once while it lasts.
//!
//! A subject is a digest of the event's facts. The caller holds the lock of the installation ([`lock`]), and
//! announces the subject in the transaction of the event.

use std::fmt::Write;

use db::Tx;
use kernel::clock::Time;
use kernel::secrets::sha256;

use crate::{EventType, store};

/// Takes the lock of the installation's own data: its webhooks and their announced subjects. A transaction
/// takes this lock before any other.
///
/// # Errors
/// The database fails.
pub async fn lock(tx: &mut Tx) -> Result<(), db::Error> {
    store::lock_installation(tx).await
}

/// Returns the subject of an event with these facts: their digest.
pub fn subject(words: &[&str]) -> String {
    let mut text = String::new();
    for byte in sha256(words.join("\n").as_bytes()) {
        // Writing to a `String` can't fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// Returns the announced subjects, sorted.
///
/// # Errors
/// The database fails.
pub async fn announced(tx: &mut Tx, event_type: EventType) -> Result<Vec<String>, db::Error> {
    store::announced(tx, event_type).await
}

/// Marks a subject as announced; returns `false` if it already was.
///
/// # Errors
/// The database fails.
pub async fn announce(
    tx: &mut Tx,
    event_type: EventType,
    subject: &str,
    now: Time,
) -> Result<bool, db::Error> {
    store::announce(tx, event_type, subject, now).await
}

/// Forgets a subject that has ended. If it returns, it is announced again.
///
/// # Errors
/// The database fails.
pub async fn forget(tx: &mut Tx, event_type: EventType, subject: &str) -> Result<(), db::Error> {
    store::remove_announced(tx, event_type, subject).await
}

/// Forgets the subjects that were announced at or before `before`, and those whose time is after `now`
/// because a clock was ahead.
///
/// # Errors
/// The database fails.
pub async fn forget_before(
    tx: &mut Tx,
    event_type: EventType,
    before: Time,
    now: Time,
) -> Result<(), db::Error> {
    store::remove_announced_before(tx, event_type, before, now).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_is_the_sha256_of_its_words() {
        // The digest of "a\nb".
        let expected = "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78";
        assert_eq!(subject(&["a", "b"]), expected);
        assert_ne!(subject(&["ab"]), subject(&["a", "b"]));
    }
}
