//! Checks for reservations, credits and months that should have ended while the service was running.

use super::{Drift, Invariant, compare};
use crate::rules::invoicing::GRACE_MS;
use kernel::clock::{DAY_MS, MINUTE_MS, Month, Time};

/// Maximum time after which the service has ended an expired reservation or credit, in milliseconds.
const END_WITHIN_MS: i64 = 10 * MINUTE_MS;
/// Maximum time after which the service has closed a month that can be closed, in milliseconds.
const CLOSE_WITHIN_MS: i64 = 2 * DAY_MS;

/// The time during which the service is known to have run. Work that becomes due while it isn't running is
/// done later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uptime {
    pub since: Time,
    pub until: Time,
}

impl Uptime {
    /// Returns `true` if the service has run for longer than this since `time`.
    fn has_passed(self, time: Time, longer_than_ms: i64) -> bool {
        self.until > time.max(self.since).plus_ms(longer_than_ms)
    }
}

/// A reservation or a credit with its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadline {
    pub id: String,
    pub at: Time,
}

/// Checks that a reservation or a credit was ended in time.
pub fn ended_in_time(invariant: Invariant, deadline: &Deadline, uptime: Uptime) -> Option<Drift> {
    let found = format!("not ended, although due at {}", deadline.at);
    if uptime.has_passed(deadline.at, END_WITHIN_MS) {
        compare(invariant, &deadline.id, "ended", found)
    } else {
        None
    }
}

/// Checks that the open month isn't later than tomorrow's month, unless the organization is deleted, and that
/// it was closed in time.
pub fn open_month(open_month: i64, is_deleted: bool, now: Time, uptime: Option<Uptime>) -> Option<Drift> {
    let month = Month::from_unix_months(open_month);
    let last = now.plus_ms(DAY_MS).day().month();
    if month > last && !is_deleted {
        return compare(Invariant::OpenMonth, "wallet", format!("{last} or earlier"), month);
    }
    let closable = month.end().plus_ms(GRACE_MS);
    let is_late = uptime.is_some_and(|uptime| uptime.has_passed(closable, CLOSE_WITHIN_MS));
    if is_late {
        compare(Invariant::OpenMonth, "wallet", format!("{month} closed"), "still open")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn expired_items_end_while_the_service_runs() {
        let deadline = Deadline { id: "res_1".into(), at: at("2026-05-01T00:00:00Z") };
        let check = |since: &str, until: &str| {
            ended_in_time(
                Invariant::ReservationOver,
                &deadline,
                Uptime { since: at(since), until: at(until) },
            )
            .is_some()
        };
        assert!(!check("2026-04-01T00:00:00Z", "2026-05-01T00:10:00Z"));
        assert!(check("2026-04-01T00:00:00Z", "2026-05-01T00:10:01Z"));
        assert!(!check("2026-05-09T00:00:00Z", "2026-05-09T00:10:00Z"), "the service wasn't running");
    }

    #[test]
    fn months_are_closed_in_time() {
        let may = at("2026-05-01T00:00:00Z").day().month().unix_months();
        let check = |until: &str, is_deleted| {
            let until = at(until);
            let uptime = Some(Uptime { since: at("2026-01-01T00:00:00Z"), until });
            open_month(may, is_deleted, until, uptime).map(|drift| (drift.expected, drift.found))
        };
        assert_eq!(check("2026-06-04T00:00:00Z", false), None);
        assert_eq!(
            check("2026-06-04T00:00:01Z", false),
            Some(("2026-05 closed".into(), "still open".into()))
        );
        assert_eq!(check("2026-04-30T00:00:00Z", false), None);
        assert_eq!(
            check("2026-04-29T23:00:00Z", false),
            Some(("2026-04 or earlier".into(), "2026-05".into()))
        );
        assert_eq!(check("2026-04-29T23:00:00Z", true), None);
        assert_eq!(open_month(may, false, at("2026-09-01T00:00:00Z"), None), None);
    }
}
