//! Bounds that all callers share and that no single caller can exhaust.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The holder of a part of a [`SharedBound`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// An inference server or the service itself, which may take everything.
    Trusted,
    /// A caller with a credential: an API key of an organization, or a session of a user.
    Member {
        /// The organization or the user.
        group: u128,
        /// The key or the session.
        member: u128,
    },
    /// A caller without a credential, identified by the network of its address; `None` if the address isn't
    /// known.
    Network(Option<IpAddr>),
}

impl Holder {
    /// Returns the group; `None` for a holder that may take everything.
    pub(crate) fn group(self) -> Option<Group> {
        self.ids().map(|(group, _)| group)
    }

    /// Returns the group and the member; `None` for a holder that may take everything.
    fn ids(self) -> Option<(Group, u128)> {
        match self {
            Self::Trusted => None,
            Self::Member { group, member } => Some((Group::Id(group), member)),
            // A machine can use any address of its IPv6 network, so addresses aren't counted individually.
            Self::Network(Some(IpAddr::V6(address))) => Some((Group::Network(address.to_bits() >> 64), 0)),
            Self::Network(Some(IpAddr::V4(address))) => {
                Some((Group::Network(u128::from(address.to_bits()) | 1 << 127), 0))
            }
            Self::Network(None) => Some((Group::Network(0), 0)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Group {
    Id(u128),
    Network(u128),
}

/// A bound on a shared resource, such as bytes, slots or tasks.
///
/// A group (an organization, a user, a network) may hold at most as much as remains free, and a member of a
/// group (a key, a session) at most as much as it leaves free for its group. A single group can therefore get
/// half of the bound, and a single member a third. Room always remains for the next caller: with two groups,
/// a third of the bound stays free, and with nine groups, a tenth. Nothing is reserved for absent callers.
/// The rule is known from dynamic thresholds in switches (Choudhury and Hahne, 1998).
#[derive(Debug)]
pub struct SharedBound {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    used: usize,
    groups: HashMap<Group, HeldByGroup>,
}

#[derive(Default, Debug)]
struct HeldByGroup {
    all: usize,
    members: HashMap<u128, usize>,
}

/// A part of a [`SharedBound`], which is released when the permit is dropped.
#[derive(Debug)]
pub struct Permit {
    bound: Arc<SharedBound>,
    holder: Holder,
    /// The maximum total of all holders up to which this permit may grow.
    ceiling: usize,
    amount: usize,
}

impl SharedBound {
    /// Returns an unused bound.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Takes a part. Returns `None` if too little is left for this holder.
    pub fn try_take(self: &Arc<Self>, holder: Holder, amount: usize) -> Option<Permit> {
        self.try_take_within(holder, amount, self.max)
    }

    /// Takes a part like [`try_take`](Self::try_take), as if the bound were only `ceiling`. Less important
    /// work uses it to leave room for other work.
    pub fn try_take_within(
        self: &Arc<Self>,
        holder: Holder,
        amount: usize,
        ceiling: usize,
    ) -> Option<Permit> {
        let mut permit = self.none(holder);
        permit.ceiling = ceiling.min(self.max);
        permit.grow_to(amount).then_some(permit)
    }

    /// Returns a permit with an amount of 0.
    pub fn none(self: &Arc<Self>, holder: Holder) -> Permit {
        Permit { bound: Arc::clone(self), holder, ceiling: self.max, amount: 0 }
    }

    /// Returns the used amount and the maximum.
    pub fn load(&self) -> (usize, usize) {
        (self.state().used, self.max)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes more, unless that leaves too little for other holders.
    fn take(&mut self, holder: Holder, more: usize, ceiling: usize) -> bool {
        let Some(used) = self.used.checked_add(more).filter(|used| *used <= ceiling) else { return false };
        if let Some((group, member)) = holder.ids() {
            let held = self.groups.get(&group);
            let by_group = held.map_or(0, |held| held.all) + more;
            let by_member =
                held.and_then(|held| held.members.get(&member)).copied().unwrap_or_default() + more;
            let free = ceiling - used;
            if free.checked_sub(by_group).is_none_or(|free_for_group| by_member > free_for_group) {
                return false;
            }
            let held = self.groups.entry(group).or_default();
            held.all = by_group;
            held.members.insert(member, by_member);
        }
        self.used = used;
        true
    }

    fn give_back(&mut self, holder: Holder, amount: usize) {
        self.used -= amount;
        let Some((group, member)) = holder.ids() else { return };
        let Some(held) = self.groups.get_mut(&group) else { return };
        held.all -= amount;
        if let Some(by_member) = held.members.get_mut(&member) {
            *by_member -= amount;
            if *by_member == 0 {
                held.members.remove(&member);
            }
        }
        if held.members.is_empty() {
            self.groups.remove(&group);
        }
    }
}

impl Permit {
    /// Returns the holder.
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Grows to this amount, if the permit is smaller. Returns `false` if too little is left.
    pub fn grow_to(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        if more == 0 {
            return true;
        }
        let is_taken = self.bound.state().take(self.holder, more, self.ceiling);
        if is_taken {
            self.amount += more;
        }
        is_taken
    }

    /// Releases everything above this amount.
    pub fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        if less > 0 {
            self.bound.state().give_back(self.holder, less);
            self.amount -= less;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn member(group: u128, member: u128) -> Holder {
        Holder::Member { group, member }
    }

    /// Takes 1 as many times as possible.
    fn fill(bound: &Arc<SharedBound>, holder: Holder) -> Vec<Permit> {
        std::iter::from_fn(|| bound.try_take(holder, 1)).collect()
    }

    #[test]
    fn who_comes_next_finds_room() {
        // A member gets a third of 120.
        let bound = SharedBound::new(120);
        let first = fill(&bound, member(1, 1));
        assert_eq!(first.len(), 40);
        // 80 are free. Let s be the amount of the second member. The group then holds 40 + s, and 80 - s are
        // free. The second member may hold at most the difference, so s ≤ 40 - 2 s.
        let second = fill(&bound, member(1, 2));
        assert_eq!(second.len(), 13);
        // 67 are free, and a member of another group gets a third of them.
        let other = fill(&bound, member(2, 1));
        assert_eq!(other.len(), 22);
        assert_eq!(bound.load(), (75, 120));
        // A trusted holder gets the entire rest, so nothing remains for others.
        let trusted = fill(&bound, Holder::Trusted);
        assert_eq!((trusted.len(), bound.load().0), (45, 120));
        assert!(bound.try_take(member(3, 1), 1).is_none());
        drop((first, second, other, trusted));
        assert_eq!(bound.load().0, 0);
        assert!(bound.state().groups.is_empty());
    }

    #[test]
    fn many_groups_share_what_is_left() {
        let bound = SharedBound::new(1_000);
        let mut held = Vec::new();
        for group in 0..9 {
            let permits = fill(&bound, member(group, 0));
            assert!(!permits.is_empty(), "group {group} finds nothing");
            held.push(permits);
        }
        // Each of the nine groups, in turn, has left twice as much free as it took.
        let taken: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(taken, [333, 222, 148, 99, 66, 44, 29, 19, 13]);
    }

    #[test]
    fn permits_grow_and_shrink() {
        let bound = SharedBound::new(90);
        let mut permit = bound.try_take(member(1, 1), 10).unwrap();
        assert!(permit.grow_to(30) && !permit.grow_to(31) && permit.grow_to(5));
        assert_eq!(bound.load().0, 30);
        permit.shrink_to(40);
        permit.shrink_to(4);
        assert_eq!(bound.load().0, 4);
        assert!(permit.grow_to(30) && !permit.grow_to(usize::MAX));
        drop(permit);
        assert_eq!(bound.load().0, 0);
        assert!(bound.try_take(Holder::Trusted, usize::MAX).is_none());
        assert!(bound.try_take(Holder::Trusted, 90).is_some());
    }

    #[test]
    fn ceilings_leave_room() {
        let bound = SharedBound::new(100);
        let permits: Vec<_> = std::iter::from_fn(|| bound.try_take_within(Holder::Trusted, 1, 60)).collect();
        assert_eq!(permits.len(), 60);
        assert!(bound.try_take_within(Holder::Trusted, 40, 1_000).is_some());
    }

    #[test]
    fn networks_are_groups() {
        let bound = SharedBound::new(90);
        let v4 = |last| Holder::Network(Some(Ipv4Addr::new(192, 0, 2, last).into()));
        let v6 = |network: u16, host| {
            Holder::Network(Some(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host).into()))
        };
        let first = fill(&bound, v6(1, 1));
        assert_eq!(first.len(), 30);
        assert!(fill(&bound, v6(1, 2)).is_empty(), "another address of the same network");
        assert!(!fill(&bound, v6(2, 1)).is_empty());
        let second = fill(&bound, v4(1));
        assert!(!fill(&bound, v4(2)).is_empty() && !fill(&bound, Holder::Network(None)).is_empty());
        drop((first, second));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let bound = SharedBound::new(1_000);
        std::thread::scope(|scope| {
            for group in 0..4 {
                let bound = &bound;
                scope.spawn(move || {
                    for amount in 1..=500 {
                        let permit = bound.try_take(member(group, 0), amount);
                        assert!(bound.load().0 <= 1_000);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(bound.load().0, 0);
        assert!(bound.state().groups.is_empty());
    }
}
