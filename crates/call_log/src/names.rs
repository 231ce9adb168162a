//! The numbers of names. A name has the same number forever, so they are cached.

use std::collections::HashMap;
use std::fmt;

use db::Tx;
use quick_cache::sync::Cache;

use crate::entries::{Adjustment, Name, NewCall};
use crate::hour_sums::{HourKey, HourSums};
use crate::store;
use crate::store::calls::Numbers;

/// Maximum number of cached names.
const CACHE_CAPACITY: usize = 1 << 17;

/// The cache of numbers.
pub(crate) struct Names(Cache<Box<str>, i64>);

impl Default for Names {
    fn default() -> Self {
        Self(Cache::new(CACHE_CAPACITY))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

/// The numbers of some names.
#[derive(Debug, Default)]
pub(crate) struct Found {
    numbers: HashMap<Box<str>, i64>,
    /// Names whose numbers weren't cached.
    read: Vec<Box<str>>,
}

impl Names {
    /// Returns the numbers of these names, and gives new names a number. Runs no query if all are cached.
    pub(crate) async fn find(
        &self,
        tx: &mut Tx,
        names: impl Iterator<Item = Name<'_>>,
    ) -> Result<Found, db::Error> {
        let mut found = Found::default();
        for name in names {
            let text = name.as_str();
            if found.numbers.contains_key(text) {
                continue;
            }
            let cached = self.0.get(text);
            found.numbers.insert(text.into(), cached.unwrap_or_default());
            if cached.is_none() {
                found.read.push(text.into());
            }
        }
        if !found.read.is_empty() {
            // All replicas write names in the same order, to prevent deadlocks.
            found.read.sort_unstable();
            let read = store::names::find_or_add(tx, &found.read).await?;
            found.numbers.extend(read);
        }
        Ok(found)
    }

    /// Caches numbers whose transaction is committed.
    pub(crate) fn remember(&self, mut found: Found) {
        for name in found.read {
            if let Some(number) = found.numbers.remove(&name) {
                self.0.insert(name, number);
            }
        }
    }
}

impl Found {
    /// Returns the number of a name; 0 for one that wasn't looked up.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// Returns the numbers of the names of a call.
    pub(crate) fn numbers_of(&self, call: &NewCall) -> Numbers {
        let optional = |name: Option<&str>| name.map_or(0, |name| self.number(name));
        let course = &call.course;
        Numbers {
            organization: self.number(call.organization_id.short_text().as_str()),
            project: self.number(call.project_id.short_text().as_str()),
            caller: self.number(call.caller.short_text().as_str()),
            model: optional(call.model.as_deref()),
            upstream: optional(course.upstream.as_deref()),
            upstream_model: optional(course.upstream_model.as_deref()),
            code: optional(course.code),
            source: optional(call.origin.as_ref().map(|origin| &*origin.source)),
        }
    }

    /// Returns the row of sums that an adjustment belongs to, and its sums.
    pub(crate) fn hour_of(&self, adjustment: &Adjustment) -> (HourKey, HourSums) {
        let key = HourKey {
            organization: self.number(adjustment.organization_id.short_text().as_str()),
            hour: HourKey::hour_of(adjustment.id.created_at()),
            project: self.number(adjustment.project_id.short_text().as_str()),
            caller: self.number(adjustment.caller.short_text().as_str()),
            model: self.number(&adjustment.model),
            code: 0,
        };
        (key, HourSums::of_usage(adjustment.usage))
    }
}
