//! When things last changed, as far as this replica has learned: what decides whether something held in memory is still
//! true.
//!
//! Changes are counted. Whoever loads something takes a [`Stamp`] of the count first and keeps it with what was loaded;
//! a change writes its number into the place of its subject. What is held is true while no place that it depends on has
//! a number above its stamp. So nothing has to be found and taken out, however many keys an organization has, and a
//! load that overlaps a change comes out as old, whenever it is put into memory.
//!
//! Several subjects may share a place. That only makes a few of them be read again without need.

use std::sync::atomic::{AtomicU64, Ordering};

use db::Change;
use kernel::ids::{ApiKeyId, Id, Kind, OrganizationId, ProjectId, SessionId, UserId};

/// Places for what there are many of and what changes often: of a million keys, 61 share one.
const MANY: usize = 1 << 14;
/// Places for the others.
const FEW: usize = 1 << 12;

/// How many changes were known when something was loaded: taken before it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

/// The number of the last change of each place.
pub struct Epochs {
    count: AtomicU64,
    everything: AtomicU64,
    sessions: Places,
    users: Places,
    api_keys: Places,
    projects: Places,
    organizations: Places,
}

impl Epochs {
    /// Nothing has changed yet.
    pub fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            everything: AtomicU64::new(0),
            sessions: Places::new(MANY),
            users: Places::new(FEW),
            api_keys: Places::new(MANY),
            projects: Places::new(FEW),
            organizations: Places::new(FEW),
        }
    }

    /// Reads something that will be held, and the stamp to keep with it: the one from before the reading.
    pub async fn stamped<T>(&self, read: impl Future<Output = T>) -> (Stamp, T) {
        let stamp = self.stamp();
        (stamp, read.await)
    }

    /// The stamp of what is read from now on.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::SeqCst))
    }

    /// Lets go of what this change concerns. It must be committed, or a load could still read what was before.
    pub fn apply(&self, change: Change) {
        let place = match change {
            Change::Session(id) => self.sessions.of(id),
            Change::User(id) => self.users.of(id),
            Change::ApiKey(id) => self.api_keys.of(id),
            Change::Project(id) => self.projects.of(id),
            Change::Organization(id) => self.organizations.of(id),
            // Nothing is held of the catalog but the catalog itself.
            Change::Catalog => return,
            // Rare enough to let go of everything.
            Change::AllSessions => None,
        };
        self.advance(place.unwrap_or(&self.everything));
    }

    /// Lets go of everything.
    pub fn drop_everything(&self) {
        self.advance(&self.everything);
    }

    /// Whether a session that was loaded at this stamp is as it was.
    pub fn holds_session(&self, stamp: Stamp, session_id: SessionId, user_id: UserId) -> bool {
        self.holds_all(stamp) && self.sessions.holds(stamp, session_id) && self.users.holds(stamp, user_id)
    }

    /// Whether a key that was loaded at this stamp is as it was.
    pub fn holds_key(
        &self,
        stamp: Stamp,
        api_key_id: ApiKeyId,
        project_id: ProjectId,
        organization_id: OrganizationId,
    ) -> bool {
        self.holds_all(stamp)
            && self.api_keys.holds(stamp, api_key_id)
            && self.projects.holds(stamp, project_id)
            && self.organizations.holds(stamp, organization_id)
    }

    /// Whether the database is still the one that was read from at this stamp, as far as is known: enough for what never changes.
    pub fn holds_all(&self, stamp: Stamp) -> bool {
        self.everything.load(Ordering::SeqCst) <= stamp.0
    }

    /// A stamp taken before the count goes up is below this place's number. One taken after is not, and what is read
    /// after that is what was committed.
    fn advance(&self, place: &AtomicU64) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        place.fetch_max(number, Ordering::SeqCst);
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

/// Places of one kind of subject, by the last bits of its id, which are random.
struct Places(Box<[AtomicU64]>);

impl Places {
    /// `count` must be a power of two.
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn of<K: Kind>(&self, id: Id<K>) -> Option<&AtomicU64> {
        let last = usize::try_from(id.as_u128() & u128::from(u32::MAX)).ok()?;
        self.0.get(last & self.0.len().wrapping_sub(1))
    }

    fn holds<K: Kind>(&self, stamp: Stamp, id: Id<K>) -> bool {
        self.of(id).is_some_and(|place| place.load(Ordering::SeqCst) <= stamp.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::Time;

    const NOW: Time = Time::from_unix_ms(0);

    fn id<K: Kind>(random: u128) -> Id<K> {
        Id::from_parts(NOW, random)
    }

    /// A key, its project and its organization.
    fn key() -> (ApiKeyId, ProjectId, OrganizationId) {
        (id(1), id(2), id(3))
    }

    fn holds(epochs: &Epochs, stamp: Stamp) -> bool {
        let (key, project, organization) = key();
        epochs.holds_key(stamp, key, project, organization)
    }

    #[tokio::test]
    async fn what_overlaps_a_change_is_old_whenever_it_is_put_into_memory() {
        let epochs = Epochs::new();
        let (key, project, organization) = key();
        let changes = [Change::ApiKey(key), Change::Project(project), Change::Organization(organization)];
        for change in changes {
            // The load reads the old row; the change is committed and applied; the load puts its row into memory.
            let (during, ()) = epochs.stamped(async { epochs.apply(change) }).await;
            assert!(!holds(&epochs, during), "{change:?}");
            // Applied again, as the feed does with what was applied at the commit: no harm but another reading.
            let after = epochs.stamp();
            assert!(holds(&epochs, after), "{change:?}");
            epochs.apply(change);
            assert!(!holds(&epochs, after), "{change:?}");
            assert!(holds(&epochs, epochs.stamp()));
        }
        let before = epochs.stamp();
        epochs.drop_everything();
        assert!(!holds(&epochs, before) && holds(&epochs, epochs.stamp()));
    }

    #[test]
    fn changes_of_others_leave_it_alone() {
        let epochs = Epochs::new();
        let (key, project, organization) = key();
        let (session, user) = (id(4), id(5));
        let stamp = epochs.stamp();
        epochs.apply(Change::ApiKey(id(7)));
        epochs.apply(Change::Project(id(key.as_u128())));
        epochs.apply(Change::Organization(id(project.as_u128())));
        epochs.apply(Change::Session(id(organization.as_u128())));
        epochs.apply(Change::User(id(8)));
        assert!(holds(&epochs, stamp) && epochs.holds_session(stamp, session, user));
        for change in [Change::Session(session), Change::User(user)] {
            let stamp = epochs.stamp();
            epochs.apply(change);
            assert!(holds(&epochs, stamp) && !epochs.holds_session(stamp, session, user), "{change:?}");
        }
        let stamp = epochs.stamp();
        epochs.apply(Change::AllSessions);
        assert!(!epochs.holds_session(stamp, session, user) && !epochs.holds_all(stamp));
    }

    /// A database of one row, and memory over it: writers change the row and then apply, readers load, put and use.
    /// Nobody may use what was changed before they began.
    #[test]
    fn nothing_old_is_used_after_a_change_was_applied() {
        use std::sync::Mutex;
        let (epochs, row, told) = (Epochs::new(), AtomicU64::new(0), AtomicU64::new(0));
        let held = Mutex::new((epochs.stamp(), 0));
        let (key, ..) = key();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let version = row.fetch_add(1, Ordering::SeqCst) + 1;
                        epochs.apply(Change::ApiKey(key));
                        told.fetch_max(version, Ordering::SeqCst);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let at_least = told.load(Ordering::SeqCst);
                        let (stamp, version) = *held.lock().unwrap();
                        if holds(&epochs, stamp) {
                            assert!(version >= at_least, "{version} was used, {at_least} was told of");
                        } else {
                            let stamp = epochs.stamp();
                            let version = row.load(Ordering::SeqCst);
                            *held.lock().unwrap() = (stamp, version);
                        }
                    }
                });
            }
        });
    }
}
