//! What is found, and what counts as growing.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::median;

/// How many wrong answers are kept to be shown.
const SHOWN: usize = 10;
/// A quarter has at least this many looks, or nothing can be said.
const LEAST: usize = 3;
/// By how much memory may differ between two quarters: allocators and caches come and go.
const SLACK_MIB: f64 = 8.0;
const SLACK: f64 = 1.10;
/// By how many descriptors: connections and readers of the database that are opened now and then.
const SLACK_DESCRIPTORS: f64 = 8.0;

/// The server at the end of a minute.
#[derive(Clone, Copy)]
pub struct Look {
    pub resident_mib: f64,
    pub descriptors: f64,
}

/// What the connections have found so far.
#[derive(Default)]
pub struct Found {
    minute: Mutex<Minute>,
    steps: Mutex<BTreeMap<&'static str, u64>>,
    problems: Mutex<Vec<String>>,
    unexpected: AtomicU64,
}

#[derive(Default)]
struct Minute {
    /// In microseconds.
    times: Vec<u32>,
    logins: Vec<u32>,
}

impl Found {
    /// Counts an answer.
    pub fn answered(&self, step: &'static str, took_us: u32) -> Result<(), String> {
        let mut minute = self.minute.lock().map_err(|error| error.to_string())?;
        let times = if step == "login" { &mut minute.logins } else { &mut minute.times };
        times.push(took_us);
        *self.steps.lock().map_err(|error| error.to_string())?.entry(step).or_default() += 1;
        Ok(())
    }

    /// Counts what should not have been.
    pub fn wrong(&self, what: String) -> Result<(), String> {
        self.unexpected.fetch_add(1, Ordering::Relaxed);
        let mut problems = self.problems.lock().map_err(|error| error.to_string())?;
        if problems.len() < SHOWN {
            problems.push(what);
        }
        Ok(())
    }

    /// How much was wrong.
    pub fn unexpected(&self) -> u64 {
        self.unexpected.load(Ordering::Relaxed)
    }

    /// The times since the last call, sorted: of all but logins, and of logins.
    pub fn take_times(&self) -> Result<(Vec<u32>, Vec<u32>), String> {
        let taken = std::mem::take(&mut *self.minute.lock().map_err(|error| error.to_string())?);
        let (mut times, mut logins) = (taken.times, taken.logins);
        times.sort_unstable();
        logins.sort_unstable();
        Ok((times, logins))
    }

    /// How often each step was done.
    pub fn steps(&self) -> Result<BTreeMap<&'static str, u64>, String> {
        Ok(self.steps.lock().map_err(|error| error.to_string())?.clone())
    }

    /// Some of what was wrong.
    pub fn problems(&self) -> Result<Vec<String>, String> {
        Ok(self.problems.lock().map_err(|error| error.to_string())?.clone())
    }
}

/// The rule: in the last quarter of the time, memory may be 10 % and 8 MiB above that of the second quarter, in the median of
/// the minutes, and there may be 8 descriptors more than the most of the second quarter. The first quarter fills caches.
///
/// # Errors
/// Something grew.
pub fn grown(looks: &[Look]) -> Result<String, String> {
    let quarter = looks.len() / 4;
    if quarter < LEAST {
        return Ok(format!(
            "{} minutes are too few to tell whether anything grows; 12 are enough.",
            looks.len()
        ));
    }
    let second = looks.get(quarter..2 * quarter).unwrap_or_default();
    let last = looks.get(looks.len() - quarter..).unwrap_or_default();
    let memory =
        |looks: &[Look]| median(looks.iter().map(|look| look.resident_mib).collect()).unwrap_or(f64::NAN);
    let most = |looks: &[Look]| looks.iter().map(|look| look.descriptors).fold(0.0, f64::max);
    let told = format!(
        "second quarter to last: {:.1} to {:.1} MiB of memory, at most {:.0} to at most {:.0} descriptors",
        memory(second),
        memory(last),
        most(second),
        most(last)
    );
    let flat =
        memory(last) <= memory(second) * SLACK + SLACK_MIB && most(last) <= most(second) + SLACK_DESCRIPTORS;
    if flat { Ok(format!("Flat: {told}.")) } else { Err(format!("it grows: {told}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(resident_mib: impl Fn(f64) -> f64, descriptors: impl Fn(f64) -> f64) -> Vec<Look> {
        (0..60)
            .map(f64::from)
            .map(|minute| Look { resident_mib: resident_mib(minute), descriptors: descriptors(minute) })
            .collect()
    }

    #[test]
    fn what_settles_is_flat() {
        let warming = looks(|minute| 60.0 - 30.0 / (1.0 + minute), |minute| 40.0 + minute % 7.0);
        assert!(grown(&warming).is_ok());
    }

    #[test]
    fn what_grows_is_told() {
        assert!(grown(&looks(|minute| 40.0 + minute / 2.0, |_| 40.0)).is_err(), "half a MiB a minute");
        assert!(
            grown(&looks(|_| 40.0, |minute| 40.0 + minute / 3.0)).is_err(),
            "a descriptor in three minutes"
        );
    }

    #[test]
    fn a_few_minutes_tell_nothing() {
        let few: Vec<_> = looks(|minute| minute * 100.0, |_| 40.0).into_iter().take(8).collect();
        assert!(grown(&few).is_ok_and(|told| told.contains("too few")));
    }
}
