//! The last uses of keys, with deferred writes. A use is stored in memory, and written within a few seconds
//! or at shutdown. A crash loses only the last seconds.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use db::Db;
use kernel::clock::Time;
use kernel::error::Error;

use crate::store;
use crate::store::api_keys::{KeyUse, LiveKey};

/// Maximum number of keys that wait to be written. Once the queue is full, a key is queued at a later use.
const CAPACITY: usize = 1 << 20;
/// Maximum number of keys that one transaction writes. Such a transaction blocks other writers for a few
/// milliseconds.
const KEYS_PER_TRANSACTION: usize = 2_048;

/// The keys that were used since the last write.
pub struct LastUses {
    db: Db,
    queue: Mutex<VecDeque<Arc<LiveKey>>>,
}

impl LastUses {
    /// Returns an empty write queue for this database.
    pub fn new(db: Db) -> Self {
        Self { db, queue: Mutex::default() }
    }

    /// Stores a use. The lock of the queue is taken only for a key's first use since the last write.
    pub fn note(&self, key: &Arc<LiveKey>, now: Time) {
        if key.last_use.mark_used(now) {
            self.push(Arc::clone(key));
        }
    }

    /// Returns the number of keys that wait to be written.
    pub fn len(&self) -> usize {
        self.queue().len()
    }

    /// Returns the number of waiting keys and the maximum.
    pub fn load(&self) -> (usize, usize) {
        (self.len(), CAPACITY)
    }

    /// Returns `true` if no key waits to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the uses of at most `limit` keys, in the order of the queue; returns the number written.
    ///
    /// # Errors
    /// The database can't be written. Uses that were not written wait for the next call.
    pub async fn flush(&self, limit: usize) -> Result<usize, Error> {
        let queued: Vec<_> = {
            let mut queue = self.queue();
            let count = limit.min(queue.len());
            queue.drain(..count).collect()
        };
        let mut waiting: Vec<_> = queued.into_iter().map(|key| (key.last_use.take(key.id), key)).collect();
        // All replicas write in the same order, to prevent deadlocks; chunks are taken from the end. If a key
        // is queued twice because it was reread, the later use wins.
        waiting.sort_unstable_by_key(|(used, _)| Reverse((used.api_key_id.as_u128(), used.at)));
        waiting.dedup_by_key(|(used, _)| used.api_key_id);
        let mut unwritten = UnwrittenUses { uses: self, waiting };
        let count = unwritten.waiting.len();
        while !unwritten.waiting.is_empty() {
            let before = unwritten.waiting.len().saturating_sub(KEYS_PER_TRANSACTION);
            let mut tx = self.db.write_behind().await?;
            let uses: Vec<KeyUse> =
                unwritten.waiting.iter().skip(before).rev().map(|(used, _)| *used).collect();
            store::api_keys::write_key_uses(&mut tx, &uses, self.db.is_postgres()).await?;
            tx.commit().await?;
            unwritten.waiting.truncate(before);
        }
        Ok(count)
    }

    fn push(&self, key: Arc<LiveKey>) {
        let mut queue = self.queue();
        if queue.len() < CAPACITY {
            queue.push_back(key);
        } else {
            // The queue is full: the key's next use tries to queue it again.
            key.last_use.take(key.id);
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<LiveKey>>> {
        // Each operation on the queue is atomic, so a panic leaves it in a valid state.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uses that are queued again if they can't be written or if the write is canceled.
struct UnwrittenUses<'a> {
    uses: &'a LastUses,
    waiting: Vec<(KeyUse, Arc<LiveKey>)>,
}

impl Drop for UnwrittenUses<'_> {
    fn drop(&mut self) {
        for (used, key) in self.waiting.drain(..) {
            self.uses.note(&key, used.at);
        }
    }
}
