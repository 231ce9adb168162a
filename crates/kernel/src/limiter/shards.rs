//! A concurrent map that drops unused entries while it is used.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::MINUTE_MS;

pub(super) const SHARDS: usize = 64;
/// Maximum number of entries in a shard; a million in total. Beyond this number, each new entry evicts an
/// arbitrary entry. A flood of addresses therefore resets some meters, but doesn't take more memory.
pub(super) const MAX_ENTRIES: usize = 1 << 14;
/// The number of entries below which a shard is swept only by time.
pub(super) const MIN_SWEEP_LEN: usize = 64;

/// A map from `u128`, split into shards, each with its own lock.
#[derive(Debug)]
pub struct Shards<T> {
    shards: Vec<Mutex<Shard<T>>>,
    hasher: RandomState,
}

/// A shard of [`Shards`].
#[derive(Debug)]
pub struct Shard<T> {
    /// The entries. Add entries only with [`Shard::entry`], which bounds their number.
    pub entries: HashMap<u128, T>,
    sweep_at_len: usize,
    swept_at_ms: i64,
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        let shard = || Shard { entries: HashMap::new(), sweep_at_len: MIN_SWEEP_LEN, swept_at_ms: 0 };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), hasher: RandomState::new() }
    }
}

impl<T> Shards<T> {
    /// Locks and returns the shard that contains `key`.
    pub fn of(&self, key: u128) -> Option<MutexGuard<'_, Shard<T>>> {
        let shards = u64::try_from(self.shards.len()).ok()?;
        let index = self.hasher.hash_one(key).checked_rem(shards)?;
        self.shards.get(usize::try_from(index).ok()?).map(lock)
    }

    /// Locks and returns each shard in turn.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<T>>> {
        self.shards.iter().map(lock)
    }

    /// Drops the entries that aren't used.
    pub fn sweep(&self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool + Copy) {
        self.each().for_each(|mut shard| shard.sweep(now_ms, is_used));
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.each().map(|shard| shard.entries.len()).sum()
    }

    /// Returns `true` if the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.each().all(|shard| shard.entries.is_empty())
    }
}

fn lock<T>(shard: &Mutex<Shard<T>>) -> MutexGuard<'_, Shard<T>> {
    // Changes of an entry are atomic, so the shard is valid even after a panic.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Shard<T> {
    /// Returns the entry of `key`. A new key evicts an arbitrary entry if the shard is full.
    pub fn entry(&mut self, key: u128) -> Entry<'_, u128, T> {
        if self.entries.len() >= MAX_ENTRIES
            && !self.entries.contains_key(&key)
            && let Some(other) = self.entries.keys().next().copied()
        {
            self.entries.remove(&other);
        }
        self.entries.entry(key)
    }

    /// Drops unused entries if the last sweep was at least a minute ago, or if the shard has doubled since
    /// then.
    pub fn sweep_when_due(&mut self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool) {
        let long_ago = now_ms.abs_diff(self.swept_at_ms) >= MINUTE_MS.unsigned_abs();
        if long_ago || self.entries.len() >= self.sweep_at_len {
            self.sweep(now_ms, is_used);
        }
    }

    fn sweep(&mut self, now_ms: i64, is_used: impl Fn(&T, i64) -> bool) {
        self.entries.retain(|_, entry| is_used(entry, now_ms));
        // The next sweep by size occurs when the shard has doubled, which keeps the cost per request
        // constant.
        self.sweep_at_len = self.entries.len().saturating_mul(2).max(MIN_SWEEP_LEN);
        self.swept_at_ms = now_ms;
        self.entries.shrink_to(self.sweep_at_len);
    }
}
