//! The results, and the definition of growth.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::median;

/// Maximum number of wrong answers that are kept and shown.
const MAX_SHOWN: usize = 10;
/// Minimum number of samples per quarter; with fewer, the result is unknown.
const MIN_SAMPLES: usize = 3;
/// Allowed growth of memory between two quarters, because allocators and caches vary.
const SLACK_MIB: f64 = 8.0;
const SLACK: f64 = 1.10;
/// Allowed growth of descriptors, because database connections and readers are opened occasionally.
const SLACK_DESCRIPTORS: f64 = 8.0;

/// A sample of the server at the end of a minute.
#[derive(Clone, Copy)]
pub struct MinuteSample {
    pub resident_mib: f64,
    pub descriptors: f64,
}

/// The results of the connections so far.
#[derive(Default)]
pub struct Findings {
    minute: Mutex<Minute>,
    steps: Mutex<BTreeMap<&'static str, u64>>,
    problems: Mutex<Vec<String>>,
    unexpected: AtomicU64,
}

#[derive(Default)]
struct Minute {
    /// Latencies in microseconds.
    times: Vec<u32>,
    logins: Vec<u32>,
}

impl Findings {
    /// Counts an answer.
    pub fn answered(&self, step: &'static str, took_us: u32) -> Result<(), String> {
        let mut minute = self.minute.lock().map_err(|error| error.to_string())?;
        let times = if step == "login" { &mut minute.logins } else { &mut minute.times };
        times.push(took_us);
        *self.steps.lock().map_err(|error| error.to_string())?.entry(step).or_default() += 1;
        Ok(())
    }

    /// Counts an unexpected answer.
    pub fn wrong(&self, what: String) -> Result<(), String> {
        self.unexpected.fetch_add(1, Ordering::Relaxed);
        let mut problems = self.problems.lock().map_err(|error| error.to_string())?;
        if problems.len() < MAX_SHOWN {
            problems.push(what);
        }
        Ok(())
    }

    /// Returns the number of unexpected answers.
    pub fn unexpected(&self) -> u64 {
        self.unexpected.load(Ordering::Relaxed)
    }

    /// Returns the latencies since the last call, sorted: those of all steps except logins, and those of
    /// logins.
    pub fn take_times(&self) -> Result<(Vec<u32>, Vec<u32>), String> {
        let taken = std::mem::take(&mut *self.minute.lock().map_err(|error| error.to_string())?);
        let (mut times, mut logins) = (taken.times, taken.logins);
        times.sort_unstable();
        logins.sort_unstable();
        Ok((times, logins))
    }

    /// Returns the count of each step.
    pub fn steps(&self) -> Result<BTreeMap<&'static str, u64>, String> {
        Ok(self.steps.lock().map_err(|error| error.to_string())?.clone())
    }

    /// Returns the first few unexpected answers.
    pub fn problems(&self) -> Result<Vec<String>, String> {
        Ok(self.problems.lock().map_err(|error| error.to_string())?.clone())
    }
}

/// Checks for growth. In the last quarter, the median memory may be 10 % and 8 MiB above that of the second
/// quarter, and the maximum number of descriptors may be 8 above. The first quarter fills caches.
///
/// # Errors
/// Memory or descriptors grew.
pub fn grown(looks: &[MinuteSample]) -> Result<String, String> {
    let quarter = looks.len() / 4;
    if quarter < MIN_SAMPLES {
        return Ok(format!(
            "{} minutes are too few to tell whether anything grows; 12 are enough.",
            looks.len()
        ));
    }
    let second = looks.get(quarter..2 * quarter).unwrap_or_default();
    let last = looks.get(looks.len() - quarter..).unwrap_or_default();
    let memory = |looks: &[MinuteSample]| {
        median(looks.iter().map(|look| look.resident_mib).collect()).unwrap_or(f64::NAN)
    };
    let most = |looks: &[MinuteSample]| looks.iter().map(|look| look.descriptors).fold(0.0, f64::max);
    let told = format!(
        "from the second quarter to the last: median memory {:.1} to {:.1} MiB, maximum descriptors {:.0} to {:.0}",
        memory(second),
        memory(last),
        most(second),
        most(last)
    );
    let flat =
        memory(last) <= memory(second) * SLACK + SLACK_MIB && most(last) <= most(second) + SLACK_DESCRIPTORS;
    if flat { Ok(format!("Flat: {told}.")) } else { Err(format!("growth: {told}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(resident_mib: impl Fn(f64) -> f64, descriptors: impl Fn(f64) -> f64) -> Vec<MinuteSample> {
        (0..60)
            .map(f64::from)
            .map(|minute| MinuteSample {
                resident_mib: resident_mib(minute),
                descriptors: descriptors(minute),
            })
            .collect()
    }

    #[test]
    fn settled_values_are_flat() {
        let warming = looks(|minute| 60.0 - 30.0 / (1.0 + minute), |minute| 40.0 + minute % 7.0);
        assert!(grown(&warming).is_ok());
    }

    #[test]
    fn growth_is_reported() {
        assert!(grown(&looks(|minute| 40.0 + minute / 2.0, |_| 40.0)).is_err(), "half a MiB per minute");
        assert!(
            grown(&looks(|_| 40.0, |minute| 40.0 + minute / 3.0)).is_err(),
            "one descriptor every three minutes"
        );
    }

    #[test]
    fn few_minutes_give_no_result() {
        let few: Vec<_> = looks(|minute| minute * 100.0, |_| 40.0).into_iter().take(8).collect();
        assert!(grown(&few).is_ok_and(|told| told.contains("too few")));
    }
}
