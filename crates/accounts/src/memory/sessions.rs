//! The cache of live sessions, so that repeated use of an access token needs no query.
//!
//! A session is read on first use, and cached until the feed reports a change of this session or of all
//! sessions of its user. Its expiry is checked at every use. Only live sessions are cached: a session that
//! has ended is looked up each time. The cache also contains the time at which a session was last seen, so
//! that checking a browser's idle time needs no query either.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quick_cache::sync::Cache;

use crate::{Accounts, store};
use cluster::epochs::Stamp;
use cluster::feed::Feed;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::SessionId;

use crate::store::sessions::LiveSession;

/// The maximum number of cached sessions, at about 120 bytes each. If more sessions are in use, the least
/// used ones are evicted.
const CAPACITY: usize = 100_000;

#[derive(Clone)]
struct CachedSession {
    session: LiveSession,
    /// The time at which this replica last saw the session, in Unix milliseconds.
    seen_at_ms: Arc<AtomicI64>,
    stamp: Stamp,
}

impl CachedSession {
    fn new(session: LiveSession, stamp: Stamp) -> Self {
        Self { seen_at_ms: Arc::new(AtomicI64::new(session.last_seen_at.unix_ms())), session, stamp }
    }

    fn session(&self) -> LiveSession {
        let last_seen_at = Time::from_unix_ms(self.seen_at_ms.load(Ordering::Relaxed));
        LiveSession { last_seen_at, ..self.session }
    }
}

/// The cache of live sessions, by session id.
pub struct Sessions {
    cache: Cache<SessionId, CachedSession>,
}

impl Sessions {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self { cache: Cache::new(CAPACITY) }
    }

    /// Returns the number of cached sessions.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns `true` if no session is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the session if it is live; otherwise `None`.
    ///
    /// # Errors
    /// 503 if it isn't cached and the database can't be read.
    pub async fn live(
        &self,
        accounts: &Accounts,
        session_id: SessionId,
        now: Time,
    ) -> Result<Option<LiveSession>, Error> {
        if !accounts.feed.is_trusted(now) {
            return look_up(accounts, session_id, now).await;
        }
        loop {
            match self.cache.get_value_or_guard_async(&session_id).await {
                Ok(held) if is_current(&accounts.feed, session_id, &held) => {
                    return Ok(Some(held.session()).filter(|session| session.expires_at > now));
                }
                // Remove the outdated entry. Then only one of several concurrent callers reads the session
                // again, and the others wait for it.
                Ok(_) => {
                    self.cache.remove_if(&session_id, |held| !is_current(&accounts.feed, session_id, held));
                }
                Err(guard) => {
                    let (stamp, session) =
                        accounts.feed.epochs.stamped(look_up(accounts, session_id, now)).await;
                    let session = session?;
                    if let Some(session) = session {
                        // The insertion fails only if another caller has inserted the session in the
                        // meantime. Then that entry is kept.
                        guard.insert(CachedSession::new(session, stamp)).ok();
                    }
                    return Ok(session);
                }
            }
        }
    }
}

impl Sessions {
    /// Updates the time at which a session was last seen, if the session is cached.
    pub fn note_seen(&self, session_id: SessionId, seen_at: Time) {
        if let Some(held) = self.cache.get(&session_id) {
            held.seen_at_ms.fetch_max(seen_at.unix_ms(), Ordering::Relaxed);
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new()
    }
}

fn is_current(feed: &Feed, session_id: SessionId, held: &CachedSession) -> bool {
    feed.epochs.holds_session(held.stamp, session_id, held.session.user_id)
}

async fn look_up(
    accounts: &Accounts,
    session_id: SessionId,
    now: Time,
) -> Result<Option<LiveSession>, Error> {
    Ok(store::sessions::live(&mut accounts.db.read().await?, session_id, now).await?)
}
