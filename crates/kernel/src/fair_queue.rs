//! Queues that are fair between groups.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// A bounded queue that serves its groups in turn, and the entries of each group in order.
#[derive(Debug)]
pub struct FairQueue<G, T> {
    max: usize,
    len: usize,
    /// The groups with entries, in the order of their turns.
    turns: VecDeque<G>,
    groups: HashMap<G, VecDeque<T>>,
}

/// The outcome of adding an entry: the entry that was displaced, if any.
pub type Displaced<T> = Option<T>;

impl<G: Copy + Eq + Hash, T> FairQueue<G, T> {
    /// Returns an empty queue of at most this many entries.
    pub fn new(max: usize) -> Self {
        Self { max, len: 0, turns: VecDeque::new(), groups: HashMap::new() }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the queue has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry. If the queue is full, the newest entry of the largest group is displaced, provided that
    /// this group has at least two more entries than the new entry's group. Otherwise, returns `None`.
    pub fn push(&mut self, group: G, entry: T) -> Option<Displaced<T>> {
        let mut displaced = None;
        if self.len >= self.max {
            let own = self.groups.get(&group).map_or(0, VecDeque::len);
            let sizes: BTreeMap<usize, G> = self
                .turns
                .iter()
                .rev()
                .filter_map(|group| Some((self.groups.get(group)?.len(), *group)))
                .collect();
            let (size, largest) = sizes.last_key_value().map(|(size, group)| (*size, *group))?;
            if size < own + 2 {
                return None;
            }
            displaced = self.groups.get_mut(&largest).and_then(VecDeque::pop_back);
            self.len -= 1;
        }
        self.len += 1;
        let entries = self.groups.entry(group).or_default();
        if entries.is_empty() {
            self.turns.push_back(group);
        }
        entries.push_back(entry);
        Some(displaced)
    }

    /// Removes the next entry: the oldest entry of the group with the smallest number. Among groups with the
    /// same number, the first in turn is chosen. Groups without a number are skipped.
    pub fn pop_of_least<N: Ord>(&mut self, number: impl Fn(&G) -> Option<N>) -> Option<(G, T)> {
        let numbers = self.turns.iter().enumerate().filter_map(|(at, group)| Some((number(group)?, at)));
        let (_, at) = numbers.min()?;
        self.take(at)
    }

    /// Removes the next entry: the oldest entry of the first group in turn whose entry may be removed now.
    pub fn pop_where(&mut self, may: impl Fn(&G, &T) -> bool) -> Option<(G, T)> {
        let oldest = |group: &G| self.groups.get(group).and_then(VecDeque::front);
        let at = self.turns.iter().position(|group| oldest(group).is_some_and(|entry| may(group, entry)))?;
        self.take(at)
    }

    /// Removes the oldest entry of the group at this position in the order of turns.
    fn take(&mut self, at: usize) -> Option<(G, T)> {
        let group = self.turns.remove(at)?;
        let entries = self.groups.get_mut(&group)?;
        let entry = entries.pop_front();
        if entries.is_empty() {
            self.groups.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        self.len -= usize::from(entry.is_some());
        Some((group, entry?))
    }

    /// Removes the oldest entry of the first group in turn.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_of_least(|_| Some(0)).map(|(_, entry)| entry)
    }

    /// Removes an entry for which `is_it` returns `true`, if any.
    pub fn remove_where(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let found =
            self.groups.iter().find_map(|(group, entries)| Some((*group, entries.iter().position(&is_it)?)));
        let (group, at) = found?;
        let entries = self.groups.get_mut(&group)?;
        let entry = entries.remove(at);
        if entries.is_empty() {
            self.groups.remove(&group);
            self.turns.retain(|other| *other != group);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }

    /// Removes the entries for which `keep` returns `false`.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for entries in self.groups.values_mut() {
            entries.retain(&keep);
        }
        self.groups.retain(|_, entries| !entries.is_empty());
        self.turns.retain(|group| self.groups.contains_key(group));
        self.len = self.groups.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_take_turns() {
        let mut queue = FairQueue::new(10);
        for (group, entry) in [('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)] {
            assert_eq!(queue.push(group, entry), Some(None));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert_eq!((queue.len(), queue.turns.len(), queue.groups.len()), (0, 0, 0));
    }

    #[test]
    fn full_queue_has_room_for_who_waits_less() {
        let mut queue = FairQueue::new(3);
        for entry in 1..=3 {
            assert_eq!(queue.push('a', entry), Some(None));
        }
        assert_eq!(queue.push('a', 4), None);
        // The newest entry of the largest group is displaced, if that makes the queue fairer.
        assert_eq!(queue.push('b', 5), Some(Some(3)));
        assert_eq!(queue.push('b', 6), None, "2 of a, 1 of b: no fairer the other way round");
        assert_eq!(queue.push('c', 7), Some(Some(2)));
        assert_eq!(queue.len(), 3);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [1, 5, 7]);
        assert_eq!(FairQueue::new(0).push('a', 1), None);
    }

    #[test]
    fn groups_that_may_not_are_passed_over() {
        let mut queue = FairQueue::new(10);
        for (group, entry) in [('a', 1), ('a', 2), ('b', 3), ('c', 4)] {
            queue.push(group, entry).unwrap();
        }
        assert_eq!(queue.pop_where(|group, _| *group != 'a'), Some(('b', 3)));
        assert_eq!(queue.pop_where(|_, entry| *entry != 1), Some(('c', 4)));
        assert_eq!(queue.pop_where(|_, _| false), None);
        assert_eq!(
            (queue.remove_where(|entry| *entry == 2), queue.remove_where(|entry| *entry == 2)),
            (Some(2), None)
        );
        assert_eq!((queue.remove_where(|entry| *entry == 1), queue.len()), (Some(1), 0));
        assert!(queue.turns.is_empty() && queue.groups.is_empty());
    }

    #[test]
    fn entries_that_left_make_room() {
        let mut queue = FairQueue::new(2);
        queue.push('a', 1).unwrap();
        queue.push('b', 2).unwrap();
        queue.retain(|entry| *entry == 2);
        assert_eq!((queue.len(), queue.push('a', 3)), (1, Some(None)));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(2), Some(3), None));
    }
}
