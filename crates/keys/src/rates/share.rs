//! A replica's share of a shared rate, as pure code.

use crate::rules::rate_pool::{LEASE_MS, Loan, Pool, Report, max_lease};
use kernel::error::RateLimit;
use kernel::rates::{Allowance, Meter, REQUEST, STEP_BACK_MS};

/// A lease is renewed when only an eighth of it is left. A lease of fewer than eight requests is used up
/// first, because calls are rare then and no further call may follow.
const RENEWAL_DIVISOR: u32 = 8;
/// The factor by which a lease may exceed the previous one.
const MAX_GROWTH: u32 = 4;

/// A replica's share of a shared rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The rate of all replicas as known to this replica: the requests that all replicas have used or
    /// borrowed, without the unused rest of its own leases.
    meter: Meter,
    /// The older lease, which is used up first.
    old: Lease,
    new: Lease,
    is_renewing: bool,
    /// The number of calls that were admitted without a lease and not reported yet.
    unleased: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    term: i64,
    until_ms: i64,
    size: u32,
    left: u32,
    /// The number of requests that are unused, but already counted as used in the pool.
    precounted: u32,
    /// The number of used requests that aren't reported yet.
    unreported: u32,
}

/// The decision about a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// The call is admitted or refused.
    Final(Result<Allowance, RateLimit>),
    /// The call is admitted, and the lease is nearly used up.
    Renew(Allowance),
    /// No lease can decide the call.
    Borrow,
}

/// A request to the pool: reports, and the size of the wanted lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PoolRequest {
    wanted: u32,
    call_waits: bool,
    reports: [Report; 2],
    unleased: u32,
}

impl PoolRequest {
    /// Applies the request to the pool; returns the loan.
    pub fn apply(self, pool: &mut Pool, per_minute: u32, now_ms: i64) -> Loan {
        pool.meter.set_rate(per_minute.max(1));
        pool.advance(now_ms);
        self.reports.into_iter().for_each(|report| pool.settle(report));
        if self.unleased > 0 {
            pool.catch_up(self.unleased);
        }
        pool.lend(self.wanted, self.call_waits)
    }
}

impl Share {
    /// Returns a share without leases.
    pub fn new(per_minute: u32, now_ms: i64) -> Self {
        let (meter, lease) = (Meter::empty(per_minute, now_ms), Lease::default());
        Self { meter, old: lease, new: lease, is_renewing: false, unleased: 0 }
    }

    /// Returns the limit at its last use.
    pub fn per_minute(&self) -> u32 {
        self.meter.per_minute
    }

    /// Counts a call, if the leases can decide it.
    pub fn check(&mut self, per_minute: u32, now_ms: i64) -> Decision {
        let mut after = self.meter_at(per_minute, now_ms);
        let allowed = match after.take(now_ms) {
            Ok(allowed) => allowed,
            Err(refused) => return Decision::Final(Err(refused)),
        };
        let lease = match [&mut self.old, &mut self.new].into_iter().find(|lease| lease.has_requests(now_ms))
        {
            Some(lease) => lease,
            None => return Decision::Borrow,
        };
        lease.left -= 1;
        match lease.precounted {
            0 => lease.unreported += 1,
            _ => lease.precounted -= 1,
        }
        self.meter = after;
        let is_nearly_used_up =
            self.new.size >= RENEWAL_DIVISOR && self.new.left <= self.new.size / RENEWAL_DIVISOR;
        if is_nearly_used_up && !self.is_renewing && !self.old.has_requests(now_ms) {
            self.is_renewing = true;
            return Decision::Renew(allowed);
        }
        Decision::Final(Ok(allowed))
    }

    /// Counts a call with only the data of this replica.
    pub fn check_locally(&mut self, per_minute: u32, now_ms: i64) -> Result<Allowance, RateLimit> {
        self.meter = self.meter_at(per_minute, now_ms);
        let allowed = self.meter.take(now_ms)?;
        self.unleased = self.unleased.saturating_add(1);
        Ok(allowed)
    }

    /// Undoes a call that wasn't executed.
    pub fn give_back(&mut self, now_ms: i64) {
        self.meter.give_back(now_ms);
        let mut leases = [&mut self.old, &mut self.new].into_iter();
        if let Some(lease) = leases.find(|lease| lease.left < lease.size && lease.is_current(now_ms)) {
            lease.left += 1;
            match lease.unreported {
                0 => lease.precounted += 1,
                _ => lease.unreported -= 1,
            }
        }
    }

    /// Returns `true` while a new lease is being requested.
    pub fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Returns the request to the pool, with reports. The caller must call [`settle`](Self::settle) or
    /// [`give_up`](Self::give_up) afterwards.
    pub fn request(&mut self, call_waits: bool, now_ms: i64) -> PoolRequest {
        let wanted = self.next_lease_size(now_ms);
        self.meter.drain(now_ms);
        // Older calls have already drained from the meter.
        let in_meter = u32::try_from(self.meter.level.div_ceil(REQUEST)).unwrap_or(u32::MAX);
        PoolRequest {
            wanted,
            call_waits,
            reports: self.reports(now_ms),
            unleased: self.unleased.min(in_meter),
        }
    }

    /// Returns the report for the pool if a lease has lapsed with unused requests. `all`: leases that haven't
    /// lapsed are returned, too.
    pub fn return_lapsed(&mut self, all: bool, now_ms: i64) -> Option<PoolRequest> {
        let is_due = |lease: &Lease| lease.left > 0 && (all || !lease.is_current(now_ms));
        if !is_due(&self.old) && !is_due(&self.new) {
            return None;
        }
        let reports = self.reports(if all { i64::MAX } else { now_ms });
        Some(PoolRequest { wanted: 0, call_waits: false, reports, unleased: 0 })
    }

    fn reports(&mut self, now_ms: i64) -> [Report; 2] {
        [&mut self.old, &mut self.new].map(|lease| lease.report(now_ms))
    }

    /// Adds a loan from the pool.
    pub fn settle(&mut self, pool: &Pool, loan: Loan, now_ms: i64) {
        (self.is_renewing, self.unleased) = (false, 0);
        self.old = self.new;
        self.new = Lease {
            term: pool.term(),
            until_ms: now_ms.saturating_add(LEASE_MS),
            size: loan.granted,
            left: loan.granted,
            precounted: loan.precounted,
            unreported: 0,
        };
        let ours = (u64::from(self.old.left) + u64::from(loan.granted)) * REQUEST;
        self.meter = Meter { level: pool.taken().saturating_sub(ours), ..pool.meter };
    }

    /// Drops all leases after an exchange with an unknown outcome. If the pool has lent requests, they
    /// eventually count as used.
    pub fn give_up(&mut self) {
        self.is_renewing = false;
        (self.old, self.new) = (Lease::default(), Lease::default());
    }

    /// Returns `true` if the share must stay in memory.
    pub fn is_used(&self, now_ms: i64) -> bool {
        self.is_renewing || self.old.left > 0 || self.new.left > 0 || self.meter.is_used(now_ms)
    }

    fn meter_at(&self, per_minute: u32, now_ms: i64) -> Meter {
        let mut meter = self.meter;
        meter.set_rate(per_minute.max(1));
        meter.drain(now_ms);
        meter
    }

    /// Returns the size of the next lease: the recent number of requests per duration of a lease. A larger
    /// lease would withhold unused requests from the other replicas.
    fn next_lease_size(&self, now_ms: i64) -> u32 {
        let lease = &self.new;
        let used = i64::from(lease.size - lease.left.min(lease.size));
        let elapsed_ms = now_ms.saturating_sub(lease.until_ms.saturating_sub(LEASE_MS)).max(1);
        let recently_used = u32::try_from(used.saturating_mul(LEASE_MS) / elapsed_ms).unwrap_or(u32::MAX);
        recently_used
            .clamp(1, lease.size.max(1).saturating_mul(MAX_GROWTH).clamp(1, max_lease(self.meter.per_minute)))
    }
}

impl Lease {
    fn has_requests(&self, now_ms: i64) -> bool {
        self.left > 0 && self.is_current(now_ms)
    }

    /// Returns `true` if the lease hasn't lapsed and doesn't begin in the future, as it would after the clock
    /// was set back.
    fn is_current(&self, now_ms: i64) -> bool {
        (1..=LEASE_MS + STEP_BACK_MS).contains(&self.until_ms.saturating_sub(now_ms))
    }

    fn report(&mut self, now_ms: i64) -> Report {
        let unused = match self.is_current(now_ms) {
            true => 0,
            false => std::mem::take(&mut self.left) - std::mem::take(&mut self.precounted),
        };
        Report { term: self.term, used: std::mem::take(&mut self.unreported), unused }
    }
}

#[cfg(test)]
mod tests;
