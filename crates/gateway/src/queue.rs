//! The slots of an upstream and the queue for them, both fair between organizations. A slot is a `Place` in
//! code.
//!
//! While several organizations call an upstream, none of them may occupy all of its slots: an eighth stays
//! free for the others. A free slot goes to the waiting organization with the fewest slots, and in turn if
//! several have equally few. So an organization with many or long calls doesn't keep the others waiting.
//! While the queue is full, a call of an organization with fewer waiting calls replaces the newest call of
//! the organization whose queue is longest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use kernel::fair_queue::FairQueue;
use kernel::ids::OrganizationId;

/// The divisor of the share that an organization must leave free for the others: an eighth of the slots.
const OTHERS_PART: u32 = 8;
/// The time for which an organization counts as active at an upstream after its last call.
const ACTIVE_FOR: Duration = Duration::from_secs(10 * 60);

/// The slots of an upstream.
#[derive(Debug)]
pub(crate) struct Places {
    max: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: u32,
    organizations: HashMap<OrganizationId, Activity>,
    queue: FairQueue<OrganizationId, oneshot::Sender<Place>>,
}

/// The calls of one organization.
#[derive(Debug)]
struct Activity {
    places: u32,
    last_call: Instant,
}

impl State {
    /// Notes that an organization makes a call, and forgets organizations that haven't made one for a long
    /// time.
    fn note_call(&mut self, organization: OrganizationId) {
        let now = Instant::now();
        let is_active = |activity: &Activity| {
            activity.places > 0 || now.saturating_duration_since(activity.last_call) < ACTIVE_FOR
        };
        self.organizations.retain(|_, activity| is_active(activity));
        self.organizations.entry(organization).or_insert(Activity { places: 0, last_call: now }).last_call =
            now;
    }

    /// Returns the maximum number of slots of an organization if `max` slots exist.
    fn share(&self, max: u32) -> u32 {
        match self.organizations.len() {
            0 | 1 => max,
            _ => max - max.div_ceil(OTHERS_PART).min(max - 1),
        }
    }

    fn places(&self, organization: OrganizationId) -> u32 {
        self.organizations.get(&organization).map_or(0, |activity| activity.places)
    }

    /// Takes a slot, if one is free and the organization may have it.
    fn take(&mut self, organization: OrganizationId, max: u32) -> bool {
        if self.free == 0 || self.places(organization) >= self.share(max) {
            return false;
        }
        self.free -= 1;
        self.organizations
            .entry(organization)
            .or_insert_with(|| Activity { places: 0, last_call: Instant::now() })
            .places += 1;
        true
    }

    /// Releases a slot of an organization.
    fn give_back(&mut self, organization: OrganizationId) {
        self.free += 1;
        if let Some(activity) = self.organizations.get_mut(&organization) {
            activity.places = activity.places.saturating_sub(1);
        }
    }

    /// Returns the next waiting call that may have the free slot, with its organization.
    fn next(&mut self, max: u32) -> Option<(OrganizationId, oneshot::Sender<Place>)> {
        let share = self.share(max);
        let Self { organizations, queue, .. } = self;
        let places = |organization: &OrganizationId| {
            organizations.get(organization).map_or(0, |activity| activity.places)
        };
        queue.pop_of_least(|organization| Some(places(organization)).filter(|places| *places < share))
    }
}

/// A call's slot at an upstream, which is released when this value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` once the slot is given to another call.
    places: Option<Arc<Places>>,
    organization: OrganizationId,
}

impl Places {
    pub(crate) fn new(max: u32, max_waiting: u32) -> Arc<Self> {
        let max_waiting = usize::try_from(max_waiting).unwrap_or(usize::MAX);
        Arc::new(Self {
            max,
            state: Mutex::new(State {
                free: max,
                organizations: HashMap::new(),
                queue: FairQueue::new(max_waiting),
            }),
        })
    }

    /// Returns the number of occupied slots.
    pub(crate) fn taken(&self) -> u32 {
        self.max.saturating_sub(self.state().free)
    }

    /// Takes a slot, if one is free and the organization may have it.
    pub(crate) fn try_enter(self: &Arc<Self>, organization: OrganizationId) -> Option<Place> {
        let mut state = self.state();
        state.note_call(organization);
        state.take(organization, self.max).then(|| self.place(organization))
    }

    /// Returns the number of calls that wait for a slot.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    /// Takes a slot, or waits for one. Returns `None` if too many calls are already waiting, or if the wait
    /// takes too long.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        organization: OrganizationId,
        max_wait: Duration,
    ) -> Option<Place> {
        let (sender, mut receiver) = oneshot::channel();
        {
            let mut state = self.state();
            state.note_call(organization);
            if state.take(organization, self.max) {
                return Some(self.place(organization));
            }
            state.queue.retain(|waiting| !waiting.is_closed());
            // A replaced call stops waiting when its channel closes.
            drop(state.queue.push(organization, sender)?);
        }
        if let Ok(place) = timeout(max_wait, &mut receiver).await {
            return place.ok();
        }
        // A slot may have arrived at the last moment. Otherwise the closed channel is skipped.
        receiver.close();
        receiver.try_recv().ok()
    }

    fn place(self: &Arc<Self>, organization: OrganizationId) -> Place {
        Place { places: Some(Arc::clone(self)), organization }
    }

    /// Releases a call's slot, and gives it to the next waiting call.
    fn give_back(self: &Arc<Self>, mut organization: OrganizationId) {
        loop {
            let (next, waiting) = {
                let mut state = self.state();
                state.give_back(organization);
                let Some((next, waiting)) = state.next(self.max) else { return };
                state.take(next, self.max);
                (next, waiting)
            };
            match waiting.send(self.place(next)) {
                Ok(()) => return,
                // The waiting call has left.
                Err(mut place) => drop(place.places.take()),
            }
            organization = next;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            places.give_back(self.organization);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::Time;
    use kernel::random::Random;

    fn organization() -> OrganizationId {
        OrganizationId::new(Time::from_unix_ms(0), &Random::system())
    }

    #[tokio::test]
    async fn places_pass_from_call_to_call() {
        const LONG: Duration = Duration::from_secs(60);
        let places = Places::new(1, 2);
        let (one, two) = (organization(), organization());
        let first = places.enter(one, LONG).await.unwrap();
        let enter = |organization| {
            let places = Arc::clone(&places);
            tokio::spawn(async move { places.enter(organization, LONG).await })
        };
        let waits = async |count| {
            while places.waiting() != count {
                tokio::task::yield_now().await;
            }
        };
        let second = enter(one);
        waits(1).await;
        let third = enter(one);
        waits(2).await;
        // The queue is full: the newest call of the first organization is replaced by a call of the other.
        let other = enter(two);
        assert!(third.await.unwrap().is_none());
        assert!(places.enter(two, LONG).await.is_none());
        assert_eq!((places.taken(), places.waiting()), (1, 2));
        second.abort();
        drop(second.await);
        drop(first);
        let place = other.await.unwrap().unwrap();
        assert_eq!(
            (places.taken(), places.waiting()),
            (1, 0),
            "the call whose client has disconnected is skipped"
        );
        drop(place);
        assert_eq!(places.taken(), 0);
    }

    #[tokio::test]
    async fn one_organization_leaves_places_to_another() {
        let places = Places::new(9, 5);
        let (one, two) = (organization(), organization());
        let take = |organization, count: usize| -> Vec<Place> {
            (0..count).map_while(|_| places.try_enter(organization)).collect()
        };
        // A single organization may have all slots.
        let all = take(one, 20);
        assert_eq!((all.len(), places.taken()), (9, 9));
        drop(all);
        // With another organization, an eighth of nine, rounded up, stays free.
        drop(places.try_enter(two).unwrap());
        let held = take(one, 20);
        assert_eq!((held.len(), places.taken()), (7, 7));
        assert_eq!(take(two, 20).len(), 2);
        // Ten minutes after its last call, the other organization no longer counts.
        places.state().organizations.get_mut(&two).unwrap().last_call -= ACTIVE_FOR;
        assert_eq!(take(one, 20).len(), 2);
        // A single slot isn't divided.
        let single = Places::new(1, 5);
        drop(single.try_enter(two).unwrap());
        assert!(single.try_enter(one).is_some());
    }

    #[tokio::test]
    async fn free_place_goes_to_who_has_fewest() {
        const LONG: Duration = Duration::from_secs(60);
        let places = Places::new(4, 10);
        let (one, two) = (organization(), organization());
        let mut held: Vec<Place> = (0..4).map_while(|_| places.try_enter(one)).collect();
        let enter = |organization| {
            let places = Arc::clone(&places);
            tokio::spawn(async move { places.enter(organization, LONG).await })
        };
        let mut waiting = Vec::new();
        for (count, organization) in [one, one, two, two].into_iter().enumerate() {
            waiting.push(enter(organization));
            while places.waiting() != count + 1 {
                tokio::task::yield_now().await;
            }
        }
        // Each organization may have three of the four slots. Both slots that become free go to the other
        // organization, although its calls arrived later.
        held.truncate(2);
        for call in waiting.drain(2..) {
            held.push(call.await.unwrap().unwrap());
        }
        assert_eq!((places.taken(), places.waiting()), (4, 2));
        for call in waiting {
            held.remove(0);
            held.push(call.await.unwrap().unwrap());
        }
        assert_eq!((places.taken(), places.waiting()), (4, 0));
        held.clear();
        assert_eq!(places.taken(), 0);
    }

    #[tokio::test]
    async fn waiting_has_an_end() {
        let places = Places::new(1, 5);
        let first = places.enter(organization(), Duration::ZERO).await.unwrap();
        assert!(places.enter(organization(), Duration::from_millis(10)).await.is_none());
        drop(first);
        assert_eq!(places.taken(), 0);
        assert!(places.enter(organization(), Duration::ZERO).await.is_some());
        assert_eq!(places.taken(), 0);
    }
}
