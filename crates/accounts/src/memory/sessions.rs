//! Live sessions in memory, so that a repeated access token costs no query.
//!
//! A session is read on first use and held until a change of it, or of all of its user's, is applied. When it ends by
//! itself is held against the clock at every use. Only live sessions are held: who comes with an ended one is looked up
//! each time.

use quick_cache::sync::Cache;

use crate::Accounts;
use crate::store;
use cluster::epochs::Stamp;
use cluster::feed::Feed;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::SessionId;

use crate::store::sessions::LiveSession;

/// How many sessions are held at most, at about 120 bytes each; beyond it the ones least used make room.
const CAPACITY: usize = 100_000;

#[derive(Clone, Copy)]
struct Held {
    session: LiveSession,
    stamp: Stamp,
}

/// The sessions in memory, by their id.
pub struct Sessions {
    held: Cache<SessionId, Held>,
}

impl Sessions {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self { held: Cache::new(CAPACITY) }
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The session, while it is alive.
    ///
    /// # Errors
    /// 503 when it isn't known and the database can't say.
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
            match self.held.get_value_or_guard_async(&session_id).await {
                Ok(held) if is_current(&accounts.feed, session_id, &held) => {
                    return Ok(Some(held.session).filter(|session| session.expires_at > now));
                }
                // It makes way, so that of a burst one reads it again and the others wait for that.
                Ok(_) => {
                    self.held.remove_if(&session_id, |held| !is_current(&accounts.feed, session_id, held));
                }
                Err(guard) => {
                    let (stamp, session) =
                        accounts.feed.epochs.stamped(look_up(accounts, session_id, now)).await;
                    let session = session?;
                    if let Some(session) = session {
                        // The guard is lost only when somebody inserted meanwhile, which is as good.
                        guard.insert(Held { session, stamp }).ok();
                    }
                    return Ok(session);
                }
            }
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new()
    }
}

fn is_current(feed: &Feed, session_id: SessionId, held: &Held) -> bool {
    feed.epochs.holds_session(held.stamp, session_id, held.session.user_id)
}

async fn look_up(
    accounts: &Accounts,
    session_id: SessionId,
    now: Time,
) -> Result<Option<LiveSession>, Error> {
    Ok(store::sessions::live(&mut accounts.db.read().await?, session_id, now).await?)
}
