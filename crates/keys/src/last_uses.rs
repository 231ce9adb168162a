//! The last uses of keys, written behind: noted in memory with each use, written every few seconds and at the end. A crash
//! loses those seconds and nothing else.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use db::Db;
use kernel::clock::Time;
use kernel::error::Error;

use crate::store;
use crate::store::api_keys::{LiveKey, Used};

/// Keys that may wait to be written; a use beyond that is noted again with the key's next one.
const CAPACITY: usize = 1 << 20;
/// Keys that one transaction writes, in some milliseconds: others want to write too.
const AT_ONCE: usize = 2_048;

/// The keys that were used since the last writing.
pub struct LastUses {
    db: Db,
    queue: Mutex<VecDeque<Arc<LiveKey>>>,
}

impl LastUses {
    /// An empty queue to this database.
    pub fn new(db: Db) -> Self {
        Self { db, queue: Mutex::default() }
    }

    /// Notes a use. Only a key's first since the last writing takes the queue's lock.
    pub fn note(&self, key: &Arc<LiveKey>, now: Time) {
        if key.last_use.at(now) {
            self.push(Arc::clone(key));
        }
    }

    /// How many keys wait to be written.
    pub fn len(&self) -> usize {
        self.queue().len()
    }

    /// How many wait, and how many may.
    pub fn load(&self) -> (usize, usize) {
        (self.len(), CAPACITY)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what has been noted, of at most so many keys, the first first; how many they were.
    ///
    /// # Errors
    /// The database can't be written. What was not written waits for the next time.
    pub async fn flush(&self, most: usize) -> Result<usize, Error> {
        let queued: Vec<_> = {
            let mut queue = self.queue();
            let most = most.min(queue.len());
            queue.drain(..most).collect()
        };
        let mut waiting: Vec<_> = queued.into_iter().map(|key| (key.last_use.take(key.id), key)).collect();
        // In one order on every replica, so that two of them never wait for each other in a circle; taken from the end. Of a key
        // that was read anew meanwhile, the later use.
        waiting.sort_unstable_by_key(|(used, _)| Reverse((used.api_key_id.as_u128(), used.at)));
        waiting.dedup_by_key(|(used, _)| used.api_key_id);
        let mut rest = Unwritten { uses: self, waiting };
        let count = rest.waiting.len();
        while !rest.waiting.is_empty() {
            let before = rest.waiting.len().saturating_sub(AT_ONCE);
            let mut tx = self.db.write_behind().await?;
            let uses: Vec<Used> = rest.waiting.iter().skip(before).rev().map(|(used, _)| *used).collect();
            store::api_keys::note_uses(&mut tx, &uses).await?;
            tx.commit().await?;
            rest.waiting.truncate(before);
        }
        Ok(count)
    }

    fn push(&self, key: Arc<LiveKey>) {
        let mut queue = self.queue();
        if queue.len() < CAPACITY {
            queue.push_back(key);
        } else {
            // There is no place: with its next use it asks again.
            key.last_use.take(key.id);
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<LiveKey>>> {
        // A panic between whole operations of a queue leaves nothing half done.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is put back when it could not be written, also when the writing is cancelled.
struct Unwritten<'a> {
    uses: &'a LastUses,
    waiting: Vec<(Used, Arc<LiveKey>)>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        for (used, key) in self.waiting.drain(..) {
            self.uses.note(&key, used.at);
        }
    }
}
