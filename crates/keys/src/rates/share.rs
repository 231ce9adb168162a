//! What one replica holds of a shared rate, as pure code.

use crate::rules::rate_pool::{HOLD_MS, Loan, Pool, Report, most_of};
use kernel::error::RateLimit;
use kernel::rates::{Allowance, Meter, REQUEST, STEP_BACK_MS};

/// A lease is renewed when only this part of it is left. A smaller one isn't before it is used up: there are few calls, and
/// there may be no more.
const RENEW_FROM: u32 = 8;
/// How much larger than the one before a lease may be.
const GROWTH: u32 = 4;

/// A share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The whole rate as far as it is known here: what all replicas have used or hold, without what is left of ours.
    meter: Meter,
    /// Used up first.
    old: Lease,
    new: Lease,
    renewing: bool,
    /// Calls that were let through without a lease, and not reported yet.
    alone: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    term: i64,
    until_ms: i64,
    size: u32,
    left: u32,
    /// Not used yet, and counted as used in the pool.
    counted: u32,
    /// Used, and not reported yet.
    unreported: u32,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checked {
    /// It is decided.
    Done(Result<Allowance, RateLimit>),
    /// It is let through, and the lease is nearly used up.
    Renew(Allowance),
    /// There is no lease to decide by.
    Ask,
}

/// What is asked of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    wanted: u32,
    call_waits: bool,
    reports: [Report; 2],
    alone: u32,
}

impl Asked {
    /// Has it answered: what is lent.
    pub fn of(self, pool: &mut Pool, per_minute: u32, now_ms: i64) -> Loan {
        pool.meter.set_rate(per_minute.max(1));
        pool.advance(now_ms);
        self.reports.into_iter().for_each(|report| pool.settle(report));
        if self.alone > 0 {
            pool.catch_up(self.alone);
        }
        pool.lend(self.wanted, self.call_waits)
    }
}

impl Share {
    /// Nothing.
    pub fn new(per_minute: u32, now_ms: i64) -> Self {
        let (meter, lease) = (Meter::empty(per_minute, now_ms), Lease::default());
        Self { meter, old: lease, new: lease, renewing: false, alone: 0 }
    }

    /// The limit that it was last used with.
    pub fn per_minute(&self) -> u32 {
        self.meter.per_minute
    }

    /// Counts a call, as far as that can be decided here.
    pub fn check(&mut self, per_minute: u32, now_ms: i64) -> Checked {
        let mut after = self.at(per_minute, now_ms);
        let allowed = match after.take(now_ms) {
            Ok(allowed) => allowed,
            Err(refused) => return Checked::Done(Err(refused)),
        };
        let lease = match [&mut self.old, &mut self.new].into_iter().find(|lease| lease.holds(now_ms)) {
            Some(lease) => lease,
            None => return Checked::Ask,
        };
        lease.left -= 1;
        match lease.counted {
            0 => lease.unreported += 1,
            _ => lease.counted -= 1,
        }
        self.meter = after;
        let nearly_used_up = self.new.size >= RENEW_FROM && self.new.left <= self.new.size / RENEW_FROM;
        if nearly_used_up && !self.renewing && !self.old.holds(now_ms) {
            self.renewing = true;
            return Checked::Renew(allowed);
        }
        Checked::Done(Ok(allowed))
    }

    /// Counts a call by what is known here alone.
    pub fn check_alone(&mut self, per_minute: u32, now_ms: i64) -> Result<Allowance, RateLimit> {
        self.meter = self.at(per_minute, now_ms);
        let allowed = self.meter.take(now_ms)?;
        self.alone = self.alone.saturating_add(1);
        Ok(allowed)
    }

    /// Takes a call back.
    pub fn give_back(&mut self, now_ms: i64) {
        self.meter.give_back(now_ms);
        let mut leases = [&mut self.old, &mut self.new].into_iter();
        if let Some(lease) = leases.find(|lease| lease.left < lease.size && lease.is_current(now_ms)) {
            lease.left += 1;
            match lease.unreported {
                0 => lease.counted += 1,
                _ => lease.unreported -= 1,
            }
        }
    }

    /// Whether somebody is on the way for a new lease.
    pub fn is_renewing(&self) -> bool {
        self.renewing
    }

    /// What to ask the pool for, and what to tell it. Whoever takes this has to settle it, or give it up.
    pub fn ask(&mut self, call_waits: bool, now_ms: i64) -> Asked {
        let wanted = self.wanted(now_ms);
        self.meter.drain(now_ms);
        // Of those of long ago nothing is left.
        let in_meter = u32::try_from(self.meter.level.div_ceil(REQUEST)).unwrap_or(u32::MAX);
        Asked { wanted, call_waits, reports: self.reports(now_ms), alone: self.alone.min(in_meter) }
    }

    /// What to tell the pool when a lease has lapsed with something left of it, or `all` is to go back.
    pub fn returned(&mut self, all: bool, now_ms: i64) -> Option<Asked> {
        let is_due = |lease: &Lease| lease.left > 0 && (all || !lease.is_current(now_ms));
        if !is_due(&self.old) && !is_due(&self.new) {
            return None;
        }
        let reports = self.reports(if all { i64::MAX } else { now_ms });
        Some(Asked { wanted: 0, call_waits: false, reports, alone: 0 })
    }

    fn reports(&mut self, now_ms: i64) -> [Report; 2] {
        [&mut self.old, &mut self.new].map(|lease| lease.report(now_ms))
    }

    /// Takes in what the pool has lent.
    pub fn settle(&mut self, pool: &Pool, loan: Loan, now_ms: i64) {
        (self.renewing, self.alone) = (false, 0);
        self.old = self.new;
        self.new = Lease {
            term: pool.term(),
            until_ms: now_ms.saturating_add(HOLD_MS),
            size: loan.granted,
            left: loan.granted,
            counted: loan.counted,
            unreported: 0,
        };
        let ours = (u64::from(self.old.left) + u64::from(loan.granted)) * REQUEST;
        self.meter = Meter { level: pool.taken().saturating_sub(ours), ..pool.meter };
    }

    /// Nobody knows what the pool has done: whatever it has lent counts as used there in the end.
    pub fn give_up(&mut self) {
        self.renewing = false;
        (self.old, self.new) = (Lease::default(), Lease::default());
    }

    /// Whether it holds anything that is worth remembering.
    pub fn is_used(&self, now_ms: i64) -> bool {
        self.renewing || self.old.left > 0 || self.new.left > 0 || self.meter.is_used(now_ms)
    }

    fn at(&self, per_minute: u32, now_ms: i64) -> Meter {
        let mut meter = self.meter;
        meter.set_rate(per_minute.max(1));
        meter.drain(now_ms);
        meter
    }

    /// As many as were used lately in the time that a lease is held: what nobody uses is missing elsewhere meanwhile.
    fn wanted(&self, now_ms: i64) -> u32 {
        let lease = &self.new;
        let used = i64::from(lease.size - lease.left.min(lease.size));
        let elapsed_ms = now_ms.saturating_sub(lease.until_ms.saturating_sub(HOLD_MS)).max(1);
        let lately = u32::try_from(used.saturating_mul(HOLD_MS) / elapsed_ms).unwrap_or(u32::MAX);
        lately.clamp(1, lease.size.max(1).saturating_mul(GROWTH).clamp(1, most_of(self.meter.per_minute)))
    }
}

impl Lease {
    fn holds(&self, now_ms: i64) -> bool {
        self.left > 0 && self.is_current(now_ms)
    }

    /// Neither lapsed nor of a time to come, from which the clock has been set back.
    fn is_current(&self, now_ms: i64) -> bool {
        (1..=HOLD_MS + STEP_BACK_MS).contains(&self.until_ms.saturating_sub(now_ms))
    }

    fn report(&mut self, now_ms: i64) -> Report {
        let unused = match self.is_current(now_ms) {
            true => 0,
            false => std::mem::take(&mut self.left) - std::mem::take(&mut self.counted),
        };
        Report { term: self.term, used: std::mem::take(&mut self.unreported), unused }
    }
}

#[cfg(test)]
mod tests;
