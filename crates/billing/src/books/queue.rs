//! The queue of operations that wait for a transaction. Organizations take turns.

use std::collections::HashMap;
use std::time::Duration;

use kernel::fair_queue::FairQueue;
use kernel::ids::OrganizationId;
use tokio::time::Instant;

/// Maximum number of queued operations.
pub const MAX_OPERATIONS: usize = 10_000;
/// Maximum memory of queued operations, in bytes. A larger operation is accepted if the queue is empty.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum number of operations in one transaction.
pub const MAX_BATCH_OPERATIONS: usize = 1_000;
/// Maximum number of usage events in one transaction, unless a single operation has more.
const MAX_BATCH_EVENTS: usize = 2_000;
/// Maximum number of operations of one group in one transaction while other groups are active, because the
/// operations of the other groups wait for this transaction and the previous one.
const MAX_GROUP_OPERATIONS: usize = 16;
/// The time for which a group counts as active after it queued an operation.
const ACTIVE: Duration = Duration::from_secs(1);

/// The organization that an operation belongs to; `None` if it belongs to several, or if the organization
/// isn't known.
pub type Group = Option<OrganizationId>;

/// An operation in the queue.
pub trait Entry {
    /// Returns the approximate memory of the operation, in bytes.
    fn memory(&self) -> usize;
    /// Returns the number of usage events of the operation.
    fn event_count(&self) -> usize;
}

/// A bounded queue that serves its groups in turn.
#[derive(Debug)]
pub struct Queue<T> {
    entries: FairQueue<Group, Numbered<T>>,
    bytes: usize,
    /// The number of the last queued operation.
    last: u64,
    /// The group of the last queued operation. `others_at` is the time at which an operation of another group
    /// was last queued.
    last_group: Option<Group>,
    others_at: Option<Instant>,
}

#[derive(Debug)]
struct Numbered<T> {
    number: u64,
    bytes: usize,
    entry: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { entries: FairQueue::new(MAX_OPERATIONS), bytes: 0, last: 0, last_group: None, others_at: None }
    }
}

impl<T: Entry> Queue<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of the entries, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of entries that were ever added.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Adds an entry. Returns its number, and the entry that it displaced: if the queue is full, the newest
    /// entry of the largest group. Returns `None` if the queue has no room for the entry.
    pub fn push(&mut self, group: Group, entry: T, now: Instant) -> Option<(u64, Option<T>)> {
        let bytes = entry.memory();
        if self.bytes.saturating_add(bytes) > MAX_BYTES && !self.entries.is_empty() {
            return None;
        }
        let number = self.last + 1;
        let gave_way = self.entries.push(group, Numbered { number, bytes, entry })?;
        self.last = number;
        self.bytes += bytes;
        if self.last_group.replace(group).is_some_and(|last| last != group) {
            self.others_at = Some(now);
        }
        Some((number, gave_way.map(|gave_way| self.forget(gave_way))))
    }

    /// Removes an entry. Returns `false` if it isn't queued.
    pub fn withdraw(&mut self, number: u64) -> bool {
        let Some(entry) = self.entries.remove_where(|entry| entry.number == number) else { return false };
        self.forget(entry);
        true
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// Removes the entries of the next transaction: some of each group in turn, and at most sixteen of one
    /// group while others are active.
    pub fn take_batch(&mut self, now: Instant) -> Vec<T> {
        let are_others_active = self.others_at.is_some_and(|at| now.duration_since(at) < ACTIVE);
        let (mut batch, mut events) = (Vec::new(), 0);
        let mut taken: HashMap<OrganizationId, usize> = HashMap::new();
        while batch.len() < MAX_BATCH_OPERATIONS {
            let next = self.entries.pop_where(|group, next| {
                let has_had_enough = group
                    .is_some_and(|id| taken.get(&id).is_some_and(|count| *count >= MAX_GROUP_OPERATIONS));
                !has_had_enough && (batch.is_empty() || events + next.entry.event_count() <= MAX_BATCH_EVENTS)
            });
            let Some((group, next)) = next else { break };
            if let Some(id) = group.filter(|_| are_others_active) {
                *taken.entry(id).or_default() += 1;
            }
            events += next.entry.event_count();
            batch.push(self.forget(next));
        }
        batch
    }

    fn forget(&mut self, entry: Numbered<T>) -> T {
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        entry.entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::Time;
    use kernel::random::Random;

    impl Entry for &'static str {
        fn memory(&self) -> usize {
            self.len()
        }
        fn event_count(&self) -> usize {
            usize::from(*self == "large") * 1_500
        }
    }

    fn organizations<const N: usize>() -> [Group; N] {
        let random = Random::system();
        std::array::from_fn(|_| Some(OrganizationId::new(Time::from_unix_ms(0), &random)))
    }

    fn queue(entries: &[(Group, &'static str, usize)], now: Instant) -> Queue<&'static str> {
        let mut queue = Queue::default();
        for (group, entry, count) in entries {
            for _ in 0..*count {
                assert!(matches!(queue.push(*group, *entry, now), Some((_, None))));
            }
        }
        queue
    }

    /// An organization fills a transaction only while no other is active; otherwise both take turns.
    #[tokio::test]
    async fn transaction_is_shared_while_others_are_active() {
        let ([a, b], now) = (organizations(), Instant::now());
        let mut alone = queue(&[(a, "a", 1_500)], now);
        assert_eq!((alone.take_batch(now).len(), alone.take_batch(now).len(), alone.len()), (1_000, 500, 0));

        let mut shared = queue(&[(a, "a", 40), (b, "b", 2), (None, "s", 30)], now);
        let batch = shared.take_batch(now);
        assert_eq!(batch.get(..6), Some(&["a", "b", "s", "a", "b", "s"][..]), "in turns");
        let count = |name| batch.iter().filter(|entry| **entry == name).count();
        assert_eq!((count("a"), count("b"), count("s")), (16, 2, 30), "servers report for many");
        // The other organization may come back at any time within the second.
        assert_eq!(shared.take_batch(now).len(), 16);
        assert_eq!(shared.take_batch(now + ACTIVE).len(), 8);
        assert_eq!((shared.len(), shared.bytes()), (0, 0));
    }

    #[tokio::test]
    async fn transaction_has_so_many_events_or_a_single_operation() {
        let ([a], now) = (organizations(), Instant::now());
        let mut queue = queue(&[(a, "large", 2), (a, "small", 1)], now);
        assert_eq!(queue.take_batch(now), ["large"]);
        assert_eq!(queue.take_batch(now), ["large", "small"]);
    }

    #[tokio::test]
    async fn full_queue_has_room_for_who_has_less() {
        let ([a, b], now) = (organizations(), Instant::now());
        let mut queue = queue(&[(a, "a", MAX_OPERATIONS)], now);
        assert_eq!(queue.push(a, "a", now), None);
        let (number, gave_way) = queue.push(b, "b", now).unwrap();
        assert_eq!((gave_way, queue.len(), queue.bytes()), (Some("a"), MAX_OPERATIONS, MAX_OPERATIONS));
        assert!(queue.withdraw(number) && !queue.withdraw(number));
        assert_eq!((queue.len(), queue.bytes()), (MAX_OPERATIONS - 1, MAX_OPERATIONS - 1));
    }
}
