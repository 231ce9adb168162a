//! When a clock may be trusted with what can't be undone.

use std::fmt;

use kernel::clock::{HOUR_MS, MINUTE_MS, Time};

/// How far two clocks may lie apart, in milliseconds.
pub const FAR_MS: i64 = 10 * MINUTE_MS;
/// How long the service has to have been up before months close and events go, in milliseconds: usage that was kept elsewhere
/// meanwhile comes in first.
pub const UP_FOR_MS: i64 = 2 * HOUR_MS;
/// How long no replica may have run without ending that, in milliseconds.
pub const GAP_MS: i64 = 5 * MINUTE_MS;
/// How long the database's clock has to agree with one that was moved, in milliseconds. It may be the same machine's.
pub const AGREE_FOR_MS: i64 = 5 * MINUTE_MS;
/// The part of the time passed by which a clock may be set right unnoticed: a thousandth.
const SLEW: i64 = 1_000;

/// An instant, and when it was by the machine's steady clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The instant.
    pub at: Time,
    /// Milliseconds of the steady clock.
    pub steady_ms: i64,
}

impl Mark {
    /// The time that it must be by now, as time has passed.
    pub fn now(self, steady_ms: i64) -> Time {
        self.at.plus_ms(steady_ms.saturating_sub(self.steady_ms))
    }
}

/// The other clocks that a clock is held against.
#[derive(Clone, Copy, Default, Debug)]
pub struct Witnesses {
    /// The clock itself, when it was trusted.
    pub anchor: Option<Mark>,
    /// The database's clock.
    pub database: Option<Mark>,
    /// The newest time by which the service ran.
    pub last_seen_at: Option<Time>,
    /// The time that replicas have in common, when the clock was trusted.
    shared: Option<Mark>,
    /// Since when by the steady clock the database agrees with a clock that was moved.
    agrees_since_ms: Option<i64>,
}

/// Why a clock isn't trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distrust {
    /// The database has another time.
    Database {
        /// By this clock.
        now: Time,
        /// By the database's.
        database: Time,
    },
    /// The service has run at a later time.
    Behind {
        /// By this clock.
        now: Time,
        /// That time.
        last_seen_at: Time,
    },
    /// It was moved.
    Moved {
        /// By this clock.
        now: Time,
        /// As time has passed.
        expected: Time,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { now, database } => write!(
                f,
                "this machine's clock says {now}, the database's {database}: set the wrong one right (NTP)"
            ),
            Self::Behind { now, last_seen_at } => write!(
                f,
                "this machine's clock says {now}, but the service has run at {last_seen_at} already: set the clock right (NTP), or, if \
                 it is right and was wrong then, run `tollkeeper clock accept`"
            ),
            Self::Moved { now, expected } => write!(
                f,
                "this machine's clock says {now}, but as time has passed it is {expected}: set the clock right (NTP), or, if it is \
                 right now, run `tollkeeper clock accept`"
            ),
        }
    }
}

impl Witnesses {
    /// The reason not to trust this time; none where it is trusted.
    pub fn judge(&self, now: Time, steady_ms: i64) -> Option<Distrust> {
        let far = |other: Time| now.unix_ms().abs_diff(other.unix_ms()) > FAR_MS.unsigned_abs();
        if let Some(database) = self.database.map(|mark| mark.now(steady_ms)).filter(|time| far(*time)) {
            return Some(Distrust::Database { now, database });
        }
        if let Some(last_seen_at) = self.last_seen_at.filter(|seen| *seen > now && far(*seen)) {
            return Some(Distrust::Behind { now, last_seen_at });
        }
        let expected = self.anchor.map(|mark| mark.now(steady_ms)).filter(|time| far(*time));
        expected.map(|expected| Distrust::Moved { now, expected })
    }

    /// The time that replicas have in common: the database's where it has a clock, else this one. While this one isn't trusted, it is as
    /// time has passed since it was.
    pub fn shared_now(&self, now: Time, steady_ms: i64) -> Time {
        let mark = match self.judge(now, steady_ms) {
            None => self.database,
            Some(_) => self.shared.or(self.database),
        };
        mark.map_or(now, |mark| mark.now(steady_ms))
    }

    /// Goes on from this look: a trusted time is what later ones are held against, and one that was moved becomes it when the
    /// database has agreed for long enough. `asked`: the database has just told its time.
    pub fn settle(&mut self, now: Time, steady_ms: i64, asked: bool) {
        let mark = Mark { at: now, steady_ms };
        match self.judge(now, steady_ms) {
            None => {
                self.agrees_since_ms = None;
                self.anchor = Some(self.anchor.map_or(mark, |anchor| anchor.slewed(mark)));
                self.shared = Some(self.database.unwrap_or(mark));
            }
            Some(Distrust::Moved { .. }) if asked && self.database.is_some() => {
                let since_ms = *self.agrees_since_ms.get_or_insert(steady_ms);
                if steady_ms.saturating_sub(since_ms) >= AGREE_FOR_MS {
                    self.anchor = Some(mark);
                    self.agrees_since_ms = None;
                }
            }
            Some(_) => self.agrees_since_ms = None,
        }
    }

    /// Forgets how the clock was, by an operator's word that it is right.
    pub fn forget_anchor(&mut self) {
        self.anchor = None;
        self.agrees_since_ms = None;
    }
}

impl Mark {
    /// The time that it must be by now, moved toward what it is as far as clocks are set right in so much time.
    fn slewed(self, now: Self) -> Self {
        let expected = self.now(now.steady_ms);
        let most_ms = now.steady_ms.saturating_sub(self.steady_ms).max(0) / SLEW;
        let off_ms = now.at.unix_ms().saturating_sub(expected.unix_ms()).clamp(-most_ms, most_ms);
        Self { at: expected.plus_ms(off_ms), ..now }
    }
}

/// Why months don't close and events don't go yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// No server runs, as far as the database knows.
    Down,
    /// The service hasn't been up for long enough.
    Until(Time),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a month closes when the service has been up for two hours, so that usage kept elsewhere comes in first: ",
        )?;
        match self {
            Self::Down => f.write_str("no server has run in the last five minutes"),
            Self::Until(time) => write!(f, "it will have been at {time}"),
        }
    }
}

/// Checks that the service has been up for long enough.
pub fn check_up(last_seen_at: Time, up_since_at: Time, now: Time) -> Result<(), Wait> {
    let until = up_since_at.plus_ms(UP_FOR_MS);
    if last_seen_at.plus_ms(GAP_MS) < now {
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

    /// A clock that was trusted at noon, when the steady one stood at 0.
    fn at_noon(with_database: bool) -> Witnesses {
        let mark = Mark { at: NOON, steady_ms: 0 };
        let mut witnesses = Witnesses { database: with_database.then_some(mark), ..Witnesses::default() };
        witnesses.settle(NOON, 0, with_database);
        witnesses
    }

    #[test]
    fn ten_minutes_are_the_bound_to_both_sides() {
        for off_ms in [-FAR_MS, -1, 0, 1, FAR_MS] {
            assert_eq!(at_noon(false).judge(NOON.plus_ms(HOUR_MS + off_ms), HOUR_MS), None, "{off_ms}");
            assert_eq!(at_noon(true).judge(NOON.plus_ms(HOUR_MS + off_ms), HOUR_MS), None, "{off_ms}");
        }
        for off_ms in [-15 * 30 * DAY_MS, -FAR_MS - 1, FAR_MS + 1, 60 * DAY_MS] {
            let (now, expected) = (NOON.plus_ms(HOUR_MS + off_ms), NOON.plus_ms(HOUR_MS));
            assert_eq!(at_noon(false).judge(now, HOUR_MS), Some(Distrust::Moved { now, expected }));
            assert_eq!(
                at_noon(true).judge(now, HOUR_MS),
                Some(Distrust::Database { now, database: expected })
            );
        }
    }

    #[test]
    fn what_was_seen_bounds_a_clock_from_below_only() {
        let witnesses = Witnesses { last_seen_at: Some(NOON), ..Witnesses::default() };
        assert_eq!(witnesses.judge(NOON.plus_ms(-FAR_MS), 0), None);
        let now = NOON.plus_ms(-FAR_MS - 1);
        assert_eq!(witnesses.judge(now, 0), Some(Distrust::Behind { now, last_seen_at: NOON }));
        assert_eq!(witnesses.judge(NOON.plus_ms(900 * DAY_MS), 0), None);
    }

    #[test]
    fn a_clock_that_was_never_trusted_is_when_it_is_set_right() {
        let mut witnesses = Witnesses { last_seen_at: Some(NOON), ..Witnesses::default() };
        let booted = Time::from_unix_ms(0);
        witnesses.settle(booted, 0, false);
        assert!(witnesses.judge(booted, 0).is_some());
        // By ntpd, some seconds later.
        let now = NOON.plus_ms(HOUR_MS);
        assert_eq!(witnesses.judge(now, 5 * SECOND_MS), None);
        witnesses.settle(now, 5 * SECOND_MS, false);
        assert!(witnesses.judge(now.plus_ms(DAY_MS), 6 * SECOND_MS).is_some());
    }

    #[test]
    fn a_moved_clock_is_trusted_again_when_it_is_back() {
        let mut witnesses = at_noon(false);
        for steady_ms in [SECOND_MS, 60 * DAY_MS] {
            let now = NOON.plus_ms(steady_ms + 60 * DAY_MS);
            witnesses.settle(now, steady_ms, false);
            assert!(witnesses.judge(now, steady_ms).is_some());
            assert_eq!(witnesses.judge(NOON.plus_ms(steady_ms), steady_ms), None);
        }
        witnesses.forget_anchor();
        assert_eq!(witnesses.judge(NOON.plus_ms(60 * DAY_MS), SECOND_MS), None);
    }

    #[test]
    fn the_database_s_word_counts_when_it_holds_for_a_while() {
        // This machine stood still for a day, the database's didn't.
        let mut witnesses = at_noon(true);
        let wall = |steady_ms: i64| NOON.plus_ms(DAY_MS + steady_ms);
        let look = |witnesses: &mut Witnesses, steady_ms: i64, asked: bool| {
            witnesses.database = Some(Mark { at: wall(steady_ms), steady_ms });
            witnesses.settle(wall(steady_ms), steady_ms, asked);
            witnesses.judge(wall(steady_ms), steady_ms).is_none()
        };
        assert!(!look(&mut witnesses, 0, true));
        assert!(!look(&mut witnesses, AGREE_FOR_MS - 1, true));
        // An answer of before is no answer.
        assert!(!look(&mut witnesses, AGREE_FOR_MS, false));
        assert!(!look(&mut witnesses, AGREE_FOR_MS + 1, true), "from the beginning");
        assert!(look(&mut witnesses, 2 * AGREE_FOR_MS + 1, true));
    }

    #[test]
    fn replicas_have_the_database_s_time_in_common() {
        // Nine minutes behind, and trusted.
        let behind = NOON.plus_ms(-9 * MINUTE_MS);
        let mut witnesses =
            Witnesses { database: Some(Mark { at: NOON, steady_ms: 0 }), ..Witnesses::default() };
        witnesses.settle(behind, 0, true);
        assert_eq!(witnesses.shared_now(behind.plus_ms(HOUR_MS), HOUR_MS), NOON.plus_ms(HOUR_MS));
        // One of the two jumps: time passes as before.
        assert_eq!(witnesses.shared_now(behind.plus_ms(60 * DAY_MS), HOUR_MS), NOON.plus_ms(HOUR_MS));
        witnesses.database = Some(Mark { at: NOON.plus_ms(60 * DAY_MS), steady_ms: HOUR_MS });
        witnesses.settle(behind.plus_ms(HOUR_MS), HOUR_MS, true);
        assert_eq!(witnesses.shared_now(behind.plus_ms(HOUR_MS), HOUR_MS), NOON.plus_ms(HOUR_MS));
        // Without a database's there is only this machine's.
        let mut alone = at_noon(false);
        alone.settle(NOON.plus_ms(MINUTE_MS), 0, false);
        assert_eq!(alone.shared_now(NOON.plus_ms(9 * MINUTE_MS), 0), NOON.plus_ms(9 * MINUTE_MS));
        assert_eq!(alone.shared_now(NOON.plus_ms(60 * DAY_MS), HOUR_MS), NOON.plus_ms(HOUR_MS + MINUTE_MS));
        assert_eq!(Witnesses::default().shared_now(NOON, 7), NOON);
    }

    #[test]
    fn small_corrections_don_t_add_up() {
        // A second an hour for two years, and looks every five seconds.
        let mut witnesses = at_noon(false);
        let mut steady_ms = 0;
        for hour in 0..2 * 365 * 24 {
            for _ in 0..4 {
                steady_ms += 15 * MINUTE_MS;
                let now = NOON.plus_ms(steady_ms + hour * SECOND_MS);
                assert_eq!(witnesses.judge(now, steady_ms), None, "{hour}");
                witnesses.settle(now, steady_ms, false);
            }
        }
    }

    #[test]
    fn two_hours_up_without_a_gap() {
        let up = |seen_ms: i64, since_ms: i64| check_up(NOON.plus_ms(seen_ms), NOON.plus_ms(since_ms), NOON);
        assert_eq!(up(0, -UP_FOR_MS), Ok(()));
        assert_eq!(up(-GAP_MS, -UP_FOR_MS), Ok(()));
        assert_eq!(up(0, 1 - UP_FOR_MS), Err(Wait::Until(NOON.plus_ms(1))));
        assert_eq!(up(-GAP_MS - 1, -UP_FOR_MS), Err(Wait::Down));
    }
}
