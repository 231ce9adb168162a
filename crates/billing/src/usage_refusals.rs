//! The operator's events about reported usage that was refused and therefore isn't counted
//! (docs/contract/webhooks.md#events-of-the-operator).
//!
//! A server that reports wrong usage usually reports a lot of it. Therefore refusals are counted in memory
//! by code and source, and announced within a minute of the first one. While they continue, each code and
//! source is announced hourly, by one replica at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use events::operator::{self, UsageRefused};
use events::{EventType, announcements};
use kernel::clock::{HOUR_MS, Time};
use kernel::error::Error;

use crate::Billing;
use crate::rules::events::Reason;

/// The minimum time between two events with the same code and source, in milliseconds.
const PAUSE_MS: i64 = HOUR_MS;
/// Maximum number of codes and sources that are counted one by one. Further sources are counted together,
/// without their names.
const MAX_ENTRIES: usize = 1_000;

/// A code and a source; `None` if the source couldn't be read, or if too many are counted already.
type Key = (Reason, Option<Arc<str>>);

/// The refused events of this process that weren't announced yet.
#[derive(Debug, Default)]
pub struct UsageRefusals(Mutex<BTreeMap<Key, Refused>>);

/// A number of refused events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Refused {
    events: u64,
    first_at: Time,
    last_at: Time,
}

impl UsageRefusals {
    /// Counts a refused event.
    pub fn note(&self, reason: Reason, source: Option<&Arc<str>>, now: Time) {
        let mut entries = self.entries();
        let mut key = (reason, source.map(Arc::clone));
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&key) {
            key.1 = None;
        }
        let entry = entries.entry(key).or_insert(Refused { events: 0, first_at: now, last_at: now });
        entry.events = entry.events.saturating_add(1);
        entry.last_at = now;
    }

    fn snapshot(&self) -> Vec<(Key, Refused)> {
        self.entries().iter().map(|(key, refused)| (key.clone(), *refused)).collect()
    }

    /// Removes the announced refusals. Later refusals stay.
    fn remove(&self, announced: &[(Key, Refused)]) {
        let mut entries = self.entries();
        for (key, Refused { events, last_at, .. }) in announced {
            let Some(entry) = entries.get_mut(key) else { continue };
            if entry.events <= *events {
                entries.remove(key);
            } else {
                (entry.events, entry.first_at) = (entry.events.saturating_sub(*events), *last_at);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Refused>> {
        // A panic can't leave the entries half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time at which refusals are announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Codes and sources that were announced within the last hour wait.
    OnceAnHour,
    /// All immediately, because the process ends.
    Now,
}

/// Sends refused usage to the installation's webhooks, as one event for each code and source; returns the
/// number of events. If no webhook receives them, the counts are dropped.
///
/// # Errors
/// The database fails. The counts are kept.
pub async fn announce(billing: &Billing, timing: Timing) -> Result<u64, Error> {
    let waiting = billing.refusals.snapshot();
    if waiting.is_empty() {
        return Ok(0);
    }
    if !operator::has_receivers(&mut billing.db().read().await?, EventType::UsageRefused).await? {
        billing.refusals.remove(&waiting);
        return Ok(0);
    }
    let now = billing.clock.now();
    let mut announced = Vec::with_capacity(waiting.len());
    let mut tx = billing.db().write().await?;
    announcements::lock(&mut tx).await?;
    let of = EventType::UsageRefused;
    announcements::forget_before(&mut tx, of, now.plus_ms(-PAUSE_MS), now).await?;
    for (key, refused) in waiting {
        let (reason, source) = (key.0, key.1.as_deref());
        let words = [reason.as_str(), source.unwrap_or_default()];
        let is_due = announcements::announce(&mut tx, of, &announcements::subject(&words), now).await?;
        if is_due || timing == Timing::Now {
            let data = UsageRefused {
                code: reason.as_str(),
                retryable: reason.is_retryable(),
                source: source.map(str::to_owned),
                events: refused.events,
                first_at: refused.first_at,
                last_at: refused.last_at,
            };
            operator::emit(&mut tx, &data, now, &billing.random).await?;
            announced.push((key, refused));
        }
    }
    tx.commit().await?;
    billing.refusals.remove(&announced);
    Ok(u64::try_from(announced.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_unix_ms(1_769_851_800_000);

    fn key(reason: Reason, source: &str) -> Key {
        (reason, Some(source.into()))
    }

    #[test]
    fn refusals_are_summed_up_by_code_and_source() {
        let refusals = UsageRefusals::default();
        let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
        refusals.note(Reason::UnknownModel, Some(&one), NOW);
        refusals.note(Reason::UnknownModel, Some(&two), NOW);
        refusals.note(Reason::InvalidEvent, None, NOW);
        refusals.note(Reason::UnknownModel, Some(&one), NOW.plus_ms(5));
        let once = Refused { events: 1, first_at: NOW, last_at: NOW };
        let twice = Refused { events: 2, first_at: NOW, last_at: NOW.plus_ms(5) };
        let all = refusals.snapshot();
        assert_eq!(
            all,
            [
                ((Reason::InvalidEvent, None), once),
                (key(Reason::UnknownModel, "one"), twice),
                (key(Reason::UnknownModel, "two"), once)
            ]
        );
        // A refusal that arrives during the announcement stays.
        refusals.note(Reason::UnknownModel, Some(&one), NOW.plus_ms(9));
        refusals.remove(&all);
        let rest = Refused { events: 1, first_at: NOW.plus_ms(5), last_at: NOW.plus_ms(9) };
        assert_eq!(refusals.snapshot(), [(key(Reason::UnknownModel, "one"), rest)]);
        // Without receivers, all counts are dropped.
        refusals.remove(&refusals.snapshot());
        assert!(refusals.snapshot().is_empty());
    }

    #[test]
    fn too_many_sources_are_counted_together() {
        let refusals = UsageRefusals::default();
        for number in 0..MAX_ENTRIES + 3 {
            let source: Arc<str> = format!("{number}").into();
            refusals.note(Reason::EventConflict, Some(&source), NOW);
            refusals.note(Reason::EventConflict, Some(&source), NOW);
        }
        let all = refusals.snapshot();
        assert_eq!(all.len(), MAX_ENTRIES + 1);
        let nameless = all.iter().find(|((_, source), _)| source.is_none()).unwrap();
        assert_eq!(nameless.1.events, 6);
    }
}
