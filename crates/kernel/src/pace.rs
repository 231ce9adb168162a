//! A rate in bytes per second for each group of callers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::shares::{Group, Holder};

/// The time for which a group may be ahead of its rate before it waits.
const BURST: Duration = Duration::from_millis(125);
/// The number of groups from which the groups within their rate are forgotten.
const FORGET_FROM: usize = 1_024;

/// The rate at which each group (an organization, a user, a network) may send bytes.
///
/// Large bodies cost the processor time of the thread that receives them, before any other bound can refuse
/// them. A group that sends faster than its rate is read more slowly, so its clients wait. Holders that may
/// take everything have no rate.
#[derive(Debug)]
pub struct SharedPace {
    bytes_per_s: usize,
    /// For each group, the time at which its bytes would have arrived at its rate.
    due: Mutex<HashMap<Group, Instant>>,
}

impl SharedPace {
    /// Returns a pace at which no bytes have been sent yet.
    pub fn new(bytes_per_s: usize) -> Self {
        Self { bytes_per_s: bytes_per_s.max(1), due: Mutex::default() }
    }

    /// Notes that bytes have arrived. Waits while the group of the holder is ahead of its rate.
    pub async fn keep(&self, holder: Holder, bytes: usize) {
        let Some(group) = holder.group() else { return };
        let due = self.add(group, bytes);
        if let Some(until) = due.checked_sub(BURST)
            && until > Instant::now()
        {
            sleep_until(until).await;
        }
    }

    /// Returns the time at which all bytes of the group would have arrived at its rate.
    fn add(&self, group: Group, bytes: usize) -> Instant {
        let now = Instant::now();
        let mut all = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FORGET_FROM && !all.contains_key(&group) {
            all.retain(|_, due| *due > now);
        }
        let due = all.entry(group).or_insert(now);
        #[expect(clippy::cast_precision_loss, reason = "a wait needs no exact number of bytes")]
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        *due = (*due).max(now) + takes;
        *due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: usize = 1_000_000;

    fn organization(id: u128, key: u128) -> Holder {
        Holder::Member { group: id, member: key }
    }

    /// Returns the seconds until a holder has sent these bytes, in pieces of 1,000.
    async fn send(pace: &SharedPace, holder: Holder, bytes: usize) -> f64 {
        let started = Instant::now();
        for _ in 0..bytes / 1_000 {
            pace.keep(holder, 1_000).await;
        }
        started.elapsed().as_secs_f64()
    }

    /// The rate is 1 MB/s, and 125 kB may be ahead of it: 2 MB take 1.875 s.
    #[tokio::test(start_paused = true)]
    async fn bytes_above_the_rate_wait() {
        let pace = SharedPace::new(RATE);
        assert!(send(&pace, organization(1, 1), 125_000).await < 0.001);
        let all = send(&pace, organization(1, 1), 1_875_000).await;
        assert!((1.87..1.89).contains(&all), "{all} s");
        // Two keys of the organization share its rate.
        let (one, other) =
            tokio::join!(send(&pace, organization(1, 1), 500_000), send(&pace, organization(1, 2), 500_000));
        assert!((0.99..1.02).contains(&one.max(other)), "{one} s, {other} s");
        // While it hasn't sent anything for a second, the burst is free again.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(send(&pace, organization(1, 1), 125_000).await < 0.001);
    }

    #[tokio::test(start_paused = true)]
    async fn each_group_has_its_own_rate_and_trusted_holders_have_none() {
        let pace = SharedPace::new(RATE);
        let (flood, other, server) = tokio::join!(
            send(&pace, organization(1, 1), 10_000_000),
            send(&pace, organization(2, 1), 100_000),
            send(&pace, Holder::Trusted, 10_000_000),
        );
        assert!(flood > 9.8, "{flood} s");
        assert!(other < 0.001 && server < 0.001, "{other} s, {server} s");
    }

    #[tokio::test(start_paused = true)]
    async fn groups_within_their_rate_are_forgotten() {
        let pace = SharedPace::new(RATE);
        for id in 0..10 * FORGET_FROM as u128 {
            pace.keep(organization(id, 1), 1_000).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let kept = pace.due.lock().unwrap().len();
        assert!(kept <= FORGET_FROM, "{kept} groups");
    }
}
