//! A map by key that many threads use at once, and that forgets what is of no more use in passing.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::MINUTE_MS;

pub(super) const SHARDS: usize = 64;
/// Entries that a shard has at most, a million in all. Past it an arbitrary one is forgotten for each new one: a
/// flood of addresses then gives a stranger some requests back, and takes no more memory.
pub(super) const MOST_ENTRIES: usize = 1 << 14;
/// A shard smaller than this is swept by time only.
pub(super) const SWEEP_FROM: usize = 64;

/// The map.
#[derive(Debug)]
pub struct Shards<T> {
    shards: Vec<Mutex<Shard<T>>>,
    hasher: RandomState,
}

/// A part of it, locked.
#[derive(Debug)]
pub struct Shard<T> {
    /// What is remembered; new entries come by [`Shard::entry`].
    pub entries: HashMap<u128, T>,
    sweep_at_len: usize,
    swept_at_ms: i64,
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        let shard = || Shard { entries: HashMap::new(), sweep_at_len: SWEEP_FROM, swept_at_ms: 0 };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), hasher: RandomState::new() }
    }
}

impl<T> Shards<T> {
    /// The part that this key is in.
    pub fn of(&self, key: u128) -> Option<MutexGuard<'_, Shard<T>>> {
        let shards = u64::try_from(self.shards.len()).ok()?;
        let index = self.hasher.hash_one(key).checked_rem(shards)?;
        self.shards.get(usize::try_from(index).ok()?).map(lock)
    }

    /// Every part, one after the other.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<T>>> {
        self.shards.iter().map(lock)
    }

    /// Forgets what is of no use any more.
    pub fn sweep(&self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool + Copy) {
        self.each().for_each(|mut shard| shard.sweep(now_ms, is_used));
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.each().map(|shard| shard.entries.len()).sum()
    }
}

fn lock<T>(shard: &Mutex<Shard<T>>) -> MutexGuard<'_, Shard<T>> {
    // A panic between two whole assignments leaves nothing half done.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Shard<T> {
    /// The place of this key; where it is new and the shard is full, another one makes room.
    pub fn entry(&mut self, key: u128) -> Entry<'_, u128, T> {
        if self.entries.len() >= MOST_ENTRIES
            && !self.entries.contains_key(&key)
            && let Some(other) = self.entries.keys().next().copied()
        {
            self.entries.remove(&other);
        }
        self.entries.entry(key)
    }

    /// Forgets what is of no use when a minute has passed, or when there is twice as much as after the last time.
    pub fn sweep_when_due(&mut self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool) {
        let long_ago = now_ms.abs_diff(self.swept_at_ms) >= MINUTE_MS.unsigned_abs();
        if long_ago || self.entries.len() >= self.sweep_at_len {
            self.sweep(now_ms, is_used);
        }
    }

    fn sweep(&mut self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool) {
        self.entries.retain(|_, entry| is_used(entry, now_ms));
        // The next sweep waits until the shard has doubled, so that its cost stays constant a request.
        self.sweep_at_len = self.entries.len().saturating_mul(2).max(SWEEP_FROM);
        self.swept_at_ms = now_ms;
        self.entries.shrink_to(self.sweep_at_len);
    }
}
