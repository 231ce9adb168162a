//! The numbers of the latest changes, which show whether cached rows are current.
//!
//! Changes are counted. A loader first takes a [`Stamp`] of the count and keeps it with the loaded row. A
//! change writes its number into the slot of its subject. A cached row is current while no slot that it
//! depends on has a number above its stamp. Invalidation therefore never has to find the affected rows,
//! however many keys an organization has. A load that overlaps a change is outdated, no matter when it is
//! cached.
//!
//! Several subjects may share a slot. The only effect is that a few rows are read again unnecessarily.

use std::sync::atomic::{AtomicU64, Ordering};

use db::Change;
use kernel::ids::{ApiKeyId, Id, Kind, OrganizationId, ProjectId, SessionId, UserId};

/// The number of slots for subjects that are numerous and change often. With a million keys, 61 share one.
const MANY_SLOTS: usize = 1 << 14;
/// The number of slots for other subjects.
const FEW_SLOTS: usize = 1 << 12;

/// The number of changes known before a row was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

/// The number of the last change of each slot.
pub struct Epochs {
    count: AtomicU64,
    everything: AtomicU64,
    sessions: Slots,
    users: Slots,
    api_keys: Slots,
    projects: Slots,
    organizations: Slots,
}

impl Epochs {
    /// Creates epochs without changes.
    pub fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            everything: AtomicU64::new(0),
            sessions: Slots::new(MANY_SLOTS),
            users: Slots::new(FEW_SLOTS),
            api_keys: Slots::new(MANY_SLOTS),
            projects: Slots::new(FEW_SLOTS),
            organizations: Slots::new(FEW_SLOTS),
        }
    }

    /// Runs a read whose result will be cached; returns the stamp from before the read, to be kept with the
    /// result.
    pub async fn stamped<T>(&self, read: impl Future<Output = T>) -> (Stamp, T) {
        let stamp = self.stamp();
        (stamp, read.await)
    }

    /// Returns the stamp of reads that begin now.
    pub fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::SeqCst))
    }

    /// Invalidates the rows that a change affects. The change must be committed, because a load could
    /// otherwise still read the old row.
    pub fn apply(&self, change: Change) {
        let slot = match change {
            Change::Session(id) => self.sessions.of(id),
            Change::User(id) => self.users.of(id),
            Change::ApiKey(id) => self.api_keys.of(id),
            Change::Project(id) => self.projects.of(id),
            Change::Organization(id) => self.organizations.of(id),
            // The catalog isn't cached by stamps.
            Change::Catalog => return,
            // This is rare enough to invalidate everything.
            Change::AllSessions => None,
        };
        self.advance(slot.unwrap_or(&self.everything));
    }

    /// Invalidates everything.
    pub fn invalidate_all(&self) {
        self.advance(&self.everything);
    }

    /// Returns `true` if a session loaded at this stamp is current.
    pub fn holds_session(&self, stamp: Stamp, session_id: SessionId, user_id: UserId) -> bool {
        self.holds_all(stamp) && self.sessions.holds(stamp, session_id) && self.users.holds(stamp, user_id)
    }

    /// Returns `true` if a key loaded at this stamp is current.
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

    /// Returns `true` if everything is still valid since this stamp. That is enough for rows that never
    /// change.
    pub fn holds_all(&self, stamp: Stamp) -> bool {
        self.everything.load(Ordering::SeqCst) <= stamp.0
    }

    /// Counts a change of a slot. A stamp taken before the count rises is below the slot's number. A stamp
    /// taken after it isn't, and a read after that stamp sees the committed row.
    fn advance(&self, slot: &AtomicU64) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        slot.fetch_max(number, Ordering::SeqCst);
    }
}

impl Default for Epochs {
    fn default() -> Self {
        Self::new()
    }
}

/// The slots of one kind of subject. The last bits of an id, which are random, are the index.
struct Slots(Box<[AtomicU64]>);

impl Slots {
    /// Creates `count` slots, a power of two.
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    fn of<K: Kind>(&self, id: Id<K>) -> Option<&AtomicU64> {
        let last = usize::try_from(id.as_u128() & u128::from(u32::MAX)).ok()?;
        self.0.get(last & self.0.len().wrapping_sub(1))
    }

    fn holds<K: Kind>(&self, stamp: Stamp, id: Id<K>) -> bool {
        self.of(id).is_some_and(|slot| slot.load(Ordering::SeqCst) <= stamp.0)
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
    async fn a_load_that_overlaps_a_change_is_outdated() {
        let epochs = Epochs::new();
        let (key, project, organization) = key();
        let changes = [Change::ApiKey(key), Change::Project(project), Change::Organization(organization)];
        for change in changes {
            // The load reads the old row; the change is committed and applied; the load caches its row.
            let (during, ()) = epochs.stamped(async { epochs.apply(change) }).await;
            assert!(!holds(&epochs, during), "{change:?}");
            // Applying it again, as the feed does after the commit, only causes another read.
            let after = epochs.stamp();
            assert!(holds(&epochs, after), "{change:?}");
            epochs.apply(change);
            assert!(!holds(&epochs, after), "{change:?}");
            assert!(holds(&epochs, epochs.stamp()));
        }
        let before = epochs.stamp();
        epochs.invalidate_all();
        assert!(!holds(&epochs, before) && holds(&epochs, epochs.stamp()));
    }

    #[test]
    fn changes_of_other_subjects_keep_a_row_current() {
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

    /// A database of one row, and a cache of it: writers change the row and then apply the change; readers
    /// load, cache and use it. No reader may use a version that was changed before it began.
    #[test]
    fn no_outdated_row_is_used_after_a_change() {
        use std::sync::Mutex;
        let (epochs, row, applied) = (Epochs::new(), AtomicU64::new(0), AtomicU64::new(0));
        let held = Mutex::new((epochs.stamp(), 0));
        let (key, ..) = key();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let version = row.fetch_add(1, Ordering::SeqCst) + 1;
                        epochs.apply(Change::ApiKey(key));
                        applied.fetch_max(version, Ordering::SeqCst);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let at_least = applied.load(Ordering::SeqCst);
                        let (stamp, version) = *held.lock().unwrap();
                        if holds(&epochs, stamp) {
                            assert!(version >= at_least, "{version} was used, {at_least} was applied");
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
