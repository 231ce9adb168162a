//! Rules for trusting a clock before decisions that can't be undone.

use std::fmt;

use kernel::clock::{HOUR_MS, MINUTE_MS, Time};

/// The maximum difference between two clocks, in milliseconds.
pub const MAX_OFFSET_MS: i64 = 10 * MINUTE_MS;
/// The minimum uptime of the service before months are closed and events are removed, in milliseconds. It
/// leaves time to report usage that was kept elsewhere during an outage.
pub const MIN_UPTIME_MS: i64 = 2 * HOUR_MS;
/// The longest outage of all replicas that doesn't reset the uptime, in milliseconds.
pub const MAX_GAP_MS: i64 = 5 * MINUTE_MS;
/// The time for which the database's clock has to agree with a clock that was moved, in milliseconds. Both
/// may be the clock of the same machine.
pub const MIN_AGREEMENT_MS: i64 = 5 * MINUTE_MS;
/// The elapsed time divided by this is the maximum correction of the clock that is accepted.
const SLEW_DIVISOR: i64 = 1_000;

/// A time read from a clock, and the monotonic clock's time at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    pub at: Time,
    /// Milliseconds of the machine's monotonic clock.
    pub steady_ms: i64,
}

impl ClockReading {
    /// Returns the clock's current time, computed from the elapsed time.
    pub fn now(self, steady_ms: i64) -> Time {
        self.at.plus_ms(steady_ms.saturating_sub(self.steady_ms))
    }
}

/// The clocks with which the wall clock is compared.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReferenceClocks {
    /// The wall clock when it was last trusted.
    pub anchor: Option<ClockReading>,
    /// The database's clock.
    pub database: Option<ClockReading>,
    /// The latest time at which the service ran.
    pub last_seen_at: Option<Time>,
    /// The monotonic time at which the database first agreed with a clock that was moved, if it has agreed
    /// ever since.
    agrees_since_ms: Option<i64>,
}

/// The reason a clock isn't trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distrust {
    /// The database's clock has a different time.
    Database {
        /// The time by this clock.
        now: Time,
        /// The time by the database's clock.
        database: Time,
    },
    /// The service has already run at a later time.
    Behind {
        /// The time by this clock.
        now: Time,
        /// The later time.
        last_seen_at: Time,
    },
    /// The clock was moved.
    Moved {
        /// The time by this clock.
        now: Time,
        /// The time expected after the elapsed time.
        expected: Time,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { now, database } => write!(
                f,
                "this machine's clock shows {now}, the database's {database}: correct the wrong one (NTP)"
            ),
            Self::Behind { now, last_seen_at } => write!(
                f,
                "this machine's clock shows {now}, but the service was already running at {last_seen_at}: \
                 correct the clock (NTP), or, if it is correct now and was wrong before, run `tollkeeper \
                 clock accept`"
            ),
            Self::Moved { now, expected } => write!(
                f,
                "this machine's clock shows {now}, but according to the elapsed time it should show \
                 {expected}: correct the clock (NTP), or, if it is correct now, run `tollkeeper clock \
                 accept`"
            ),
        }
    }
}

impl ReferenceClocks {
    /// Returns the reason to distrust this time, or `None` if it is trusted.
    pub fn judge(&self, now: Time, steady_ms: i64) -> Option<Distrust> {
        let far = |other: &Time| are_far_apart(now, *other);
        if let Some(database) = self.database.map(|mark| mark.now(steady_ms)).filter(far) {
            return Some(Distrust::Database { now, database });
        }
        if let Some(last_seen_at) = self.last_seen_at.filter(|seen| *seen > now && far(seen)) {
            return Some(Distrust::Behind { now, last_seen_at });
        }
        let expected = self.anchor.map(|mark| mark.now(steady_ms)).filter(far);
        expected.map(|expected| Distrust::Moved { now, expected })
    }

    /// Returns the time to use when a transaction ends or extends something: the `database`'s time, which the
    /// transaction has read and which is the same for all replicas, or `now` without it. While the clocks
    /// aren't trusted, a time that is far from the last trusted time plus the elapsed time is replaced by
    /// that sum.
    pub fn time(&self, now: Time, database: Option<Time>, steady_ms: i64) -> Time {
        let time = database.unwrap_or(now);
        if !are_far_apart(now, time) && self.judge(now, steady_ms).is_none() {
            return time;
        }
        let expected = self.anchor.map(|mark| mark.now(steady_ms));
        expected.filter(|expected| are_far_apart(*expected, time)).unwrap_or(time)
    }

    /// Processes a check. A trusted time becomes the reference for later checks. A moved clock becomes the
    /// reference once the database has agreed with it for long enough. `has_asked` is `true` if the database
    /// has just responded.
    pub fn settle(&mut self, now: Time, steady_ms: i64, has_asked: bool) {
        let mark = ClockReading { at: now, steady_ms };
        match self.judge(now, steady_ms) {
            None => {
                self.agrees_since_ms = None;
                self.anchor = Some(self.anchor.map_or(mark, |anchor| anchor.slewed(mark)));
            }
            Some(Distrust::Moved { .. }) if has_asked && self.database.is_some() => {
                let since_ms = *self.agrees_since_ms.get_or_insert(steady_ms);
                if steady_ms.saturating_sub(since_ms) >= MIN_AGREEMENT_MS {
                    self.anchor = Some(mark);
                    self.agrees_since_ms = None;
                }
            }
            Some(_) => self.agrees_since_ms = None,
        }
    }

    /// Forgets the earlier clock, because an operator has confirmed the current one.
    pub fn forget_anchor(&mut self) {
        self.anchor = None;
        self.agrees_since_ms = None;
    }
}

/// Returns `true` if the times differ by more than is allowed.
fn are_far_apart(one: Time, other: Time) -> bool {
    one.unix_ms().abs_diff(other.unix_ms()) > MAX_OFFSET_MS.unsigned_abs()
}

impl ClockReading {
    /// Returns the expected current time, moved toward the wall clock by the maximum correction for the
    /// elapsed time.
    fn slewed(self, now: Self) -> Self {
        let expected = self.now(now.steady_ms);
        let max_ms = now.steady_ms.saturating_sub(self.steady_ms).max(0) / SLEW_DIVISOR;
        let off_ms = now.at.unix_ms().saturating_sub(expected.unix_ms()).clamp(-max_ms, max_ms);
        Self { at: expected.plus_ms(off_ms), ..now }
    }
}

/// The reason why months aren't closed and events aren't removed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// According to the database, no server is running.
    Down,
    /// The service hasn't been up long enough.
    Until(Time),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a month closes when the service has been up for two hours, so that usage stored elsewhere \
             arrives first: ",
        )?;
        match self {
            Self::Down => f.write_str("no server has run in the last five minutes"),
            Self::Until(time) => write!(f, "that will be at {time}"),
        }
    }
}

/// Checks that the service has been up for long enough.
pub fn check_up(last_seen_at: Time, up_since_at: Time, now: Time) -> Result<(), Wait> {
    let until = up_since_at.plus_ms(MIN_UPTIME_MS);
    if last_seen_at.plus_ms(MAX_GAP_MS) < now {
        Err(Wait::Down)
    } else if now < until {
        Err(Wait::Until(until))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::clock::{DAY_MS, SECOND_MS};

    const NOON: Time = Time::from_unix_ms(20_000 * DAY_MS + 12 * HOUR_MS);

    /// Returns the references of a clock that was trusted at noon, with the monotonic clock at 0.
    fn at_noon(with_database: bool) -> ReferenceClocks {
        let mark = ClockReading { at: NOON, steady_ms: 0 };
        let mut references =
            ReferenceClocks { database: with_database.then_some(mark), ..ReferenceClocks::default() };
        references.settle(NOON, 0, with_database);
        references
    }

    #[test]
    fn ten_minutes_are_the_bound_to_both_sides() {
        for off_ms in [-MAX_OFFSET_MS, -1, 0, 1, MAX_OFFSET_MS] {
            assert_eq!(at_noon(false).judge(NOON.plus_ms(HOUR_MS + off_ms), HOUR_MS), None, "{off_ms}");
            assert_eq!(at_noon(true).judge(NOON.plus_ms(HOUR_MS + off_ms), HOUR_MS), None, "{off_ms}");
        }
        for off_ms in [-15 * 30 * DAY_MS, -MAX_OFFSET_MS - 1, MAX_OFFSET_MS + 1, 60 * DAY_MS] {
            let (now, expected) = (NOON.plus_ms(HOUR_MS + off_ms), NOON.plus_ms(HOUR_MS));
            assert_eq!(at_noon(false).judge(now, HOUR_MS), Some(Distrust::Moved { now, expected }));
            assert_eq!(
                at_noon(true).judge(now, HOUR_MS),
                Some(Distrust::Database { now, database: expected })
            );
        }
    }

    #[test]
    fn last_seen_time_bounds_a_clock_only_from_below() {
        let references = ReferenceClocks { last_seen_at: Some(NOON), ..ReferenceClocks::default() };
        assert_eq!(references.judge(NOON.plus_ms(-MAX_OFFSET_MS), 0), None);
        let now = NOON.plus_ms(-MAX_OFFSET_MS - 1);
        assert_eq!(references.judge(now, 0), Some(Distrust::Behind { now, last_seen_at: NOON }));
        assert_eq!(references.judge(NOON.plus_ms(900 * DAY_MS), 0), None);
    }

    #[test]
    fn never_trusted_clock_is_trusted_once_it_is_right() {
        let mut references = ReferenceClocks { last_seen_at: Some(NOON), ..ReferenceClocks::default() };
        let booted = Time::from_unix_ms(0);
        references.settle(booted, 0, false);
        assert!(references.judge(booted, 0).is_some());
        // Corrected by ntpd, a few seconds later.
        let now = NOON.plus_ms(HOUR_MS);
        assert_eq!(references.judge(now, 5 * SECOND_MS), None);
        references.settle(now, 5 * SECOND_MS, false);
        assert!(references.judge(now.plus_ms(DAY_MS), 6 * SECOND_MS).is_some());
    }

    #[test]
    fn a_moved_clock_is_trusted_again_when_it_is_back() {
        let mut references = at_noon(false);
        for steady_ms in [SECOND_MS, 60 * DAY_MS] {
            let now = NOON.plus_ms(steady_ms + 60 * DAY_MS);
            references.settle(now, steady_ms, false);
            assert!(references.judge(now, steady_ms).is_some());
            assert_eq!(references.judge(NOON.plus_ms(steady_ms), steady_ms), None);
        }
        references.forget_anchor();
        assert_eq!(references.judge(NOON.plus_ms(60 * DAY_MS), SECOND_MS), None);
    }

    #[test]
    fn agreement_with_the_database_restores_trust_after_a_while() {
        // This machine was suspended for a day; the database's machine wasn't.
        let mut references = at_noon(true);
        let wall = |steady_ms: i64| NOON.plus_ms(DAY_MS + steady_ms);
        let look = |references: &mut ReferenceClocks, steady_ms: i64, asked: bool| {
            references.database = Some(ClockReading { at: wall(steady_ms), steady_ms });
            references.settle(wall(steady_ms), steady_ms, asked);
            references.judge(wall(steady_ms), steady_ms).is_none()
        };
        assert!(!look(&mut references, 0, true));
        assert!(!look(&mut references, MIN_AGREEMENT_MS - 1, true));
        // An earlier response doesn't count.
        assert!(!look(&mut references, MIN_AGREEMENT_MS, false));
        assert!(!look(&mut references, MIN_AGREEMENT_MS + 1, true), "from the beginning");
        assert!(look(&mut references, 2 * MIN_AGREEMENT_MS + 1, true));
    }

    #[test]
    fn time_is_the_databases() {
        // Nine minutes behind, and still trusted.
        let behind = NOON.plus_ms(-9 * MINUTE_MS);
        let mut references = ReferenceClocks {
            database: Some(ClockReading { at: NOON, steady_ms: 0 }),
            ..ReferenceClocks::default()
        };
        references.settle(behind, 0, true);
        let (behind, database) = (behind.plus_ms(HOUR_MS), NOON.plus_ms(HOUR_MS));
        let time = |references: &ReferenceClocks, now: Time, database: Time| {
            references.time(now, Some(database), HOUR_MS)
        };
        assert_eq!(time(&references, behind, database), database);
        // The database's clock was corrected, but no check has read it since then.
        assert_eq!(
            time(&references, behind, database.plus_ms(30 * SECOND_MS)),
            database.plus_ms(30 * SECOND_MS)
        );
        // This machine's clock jumps: the database's time is used.
        assert_eq!(time(&references, behind.plus_ms(60 * DAY_MS), database), database);
        // The database's clock jumps: its time is wrong both before and after a check reads it.
        for off_ms in [-60 * DAY_MS, 60 * DAY_MS] {
            let wrong = database.plus_ms(off_ms);
            let mut references = references;
            assert_eq!(time(&references, behind, wrong), behind);
            references.database = Some(ClockReading { at: wrong, steady_ms: HOUR_MS });
            references.settle(behind, HOUR_MS, true);
            assert_eq!(time(&references, behind, wrong), behind);
            // A replica that starts now has no correct time to compare with.
            assert_eq!(time(&ReferenceClocks::default(), behind, wrong), wrong);
        }
    }

    #[test]
    fn time_without_a_database_clock_is_this_machines() {
        let mut alone = at_noon(false);
        assert_eq!(alone.time(NOON.plus_ms(9 * MINUTE_MS), None, 0), NOON.plus_ms(9 * MINUTE_MS));
        for off_ms in [-60 * DAY_MS, 60 * DAY_MS] {
            assert_eq!(alone.time(NOON.plus_ms(off_ms), None, HOUR_MS), NOON.plus_ms(HOUR_MS));
        }
        // Another process has stored a time that is far ahead.
        alone.last_seen_at = Some(NOON.plus_ms(DAY_MS));
        assert_eq!(alone.time(NOON.plus_ms(MINUTE_MS), None, 0), NOON.plus_ms(MINUTE_MS));
        assert_eq!(ReferenceClocks::default().time(NOON, None, 7), NOON);
    }

    #[test]
    fn small_corrections_never_end_trust() {
        // The clock gains a second per hour for two years, with four checks per hour.
        let mut references = at_noon(false);
        let mut steady_ms = 0;
        for hour in 0..2 * 365 * 24 {
            for _ in 0..4 {
                steady_ms += 15 * MINUTE_MS;
                let now = NOON.plus_ms(steady_ms + hour * SECOND_MS);
                assert_eq!(references.judge(now, steady_ms), None, "{hour}");
                references.settle(now, steady_ms, false);
            }
        }
    }

    #[test]
    fn two_hours_up_without_a_gap() {
        let up = |seen_ms: i64, since_ms: i64| check_up(NOON.plus_ms(seen_ms), NOON.plus_ms(since_ms), NOON);
        assert_eq!(up(0, -MIN_UPTIME_MS), Ok(()));
        assert_eq!(up(-MAX_GAP_MS, -MIN_UPTIME_MS), Ok(()));
        assert_eq!(up(0, 1 - MIN_UPTIME_MS), Err(Wait::Until(NOON.plus_ms(1))));
        assert_eq!(up(-MAX_GAP_MS - 1, -MIN_UPTIME_MS), Err(Wait::Down));
    }
}
