//! Two rules that keep calls away from a broken upstream: the circuit breaker and the retry budget. Both are
//! pure; times are milliseconds of a monotonic clock.

/// The number of consecutive failures after which an upstream is no longer called.
const MAX_FAILURES: u32 = 5;
/// The first pause in calls to a failed upstream. It doubles with each trial call that fails, up to the
/// maximum.
const FIRST_PAUSE_MS: i64 = 2_000;
const LONGEST_PAUSE_MS: i64 = 60_000;

/// The circuit breaker of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Breaker {
    /// The failures since the last answer.
    failures: u32,
    pause: Option<Pause>,
}

/// A pause in calls to an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pause {
    until_ms: i64,
    length_ms: i64,
    /// `true` while a call tries the upstream after the pause.
    is_tried: bool,
}

/// A change of a breaker that is reported to the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The upstream isn't called for this duration, in milliseconds.
    Opened { pause_ms: i64 },
    /// The upstream answers again.
    Closed,
}

impl Breaker {
    /// Returns `true` if the upstream may be called. After a pause, one call tries the upstream, and no other
    /// call may until that call has ended.
    pub(crate) fn admits(&self, now_ms: i64) -> bool {
        self.pause.is_none_or(|pause| now_ms >= pause.until_ms && !pause.is_tried)
    }

    /// Notes the start of a call to the upstream.
    pub(crate) fn begin(&mut self, now_ms: i64) {
        if let Some(pause) = &mut self.pause
            && now_ms >= pause.until_ms
        {
            pause.is_tried = true;
        }
    }

    /// Notes an answer, which may be a refusal of the request.
    pub(crate) fn succeed(&mut self) -> Option<Change> {
        self.failures = 0;
        self.pause.take().map(|_| Change::Closed)
    }

    /// Notes that a call ended without a result that shows the upstream's state, for example because its
    /// client left.
    pub(crate) fn abandon(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.is_tried = false;
        }
    }

    /// Notes a failure.
    pub(crate) fn fail(&mut self, now_ms: i64) -> Option<Change> {
        self.failures = self.failures.saturating_add(1);
        let length_ms = match self.pause {
            // Calls that began before the pause also fail during it.
            Some(pause) if !pause.is_tried => return None,
            Some(pause) => (pause.length_ms * 2).min(LONGEST_PAUSE_MS),
            None if self.failures < MAX_FAILURES => return None,
            None => FIRST_PAUSE_MS,
        };
        self.pause = Some(Pause { until_ms: now_ms.saturating_add(length_ms), length_ms, is_tried: false });
        Some(Change::Opened { pause_ms: length_ms })
    }
}

/// The cost of a retry, in first attempts: an upstream gets at most one retry for every five first attempts.
const RETRY_COST: u32 = 5;
/// Maximum saved budget: ten retries.
const MAX_SAVED: u32 = 10 * RETRY_COST;

/// The budget of an upstream for calls that failed at another upstream. The budget keeps one broken upstream
/// from overloading the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RetryBudget(u32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(MAX_SAVED)
    }
}

impl RetryBudget {
    /// Notes a call that hasn't failed anywhere else.
    pub(crate) fn save(&mut self) {
        self.0 = (self.0 + 1).min(MAX_SAVED);
    }

    /// Takes a retry out of the budget. Returns `false` if none is left.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.0.checked_sub(RETRY_COST);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a breaker that opened at 0 ms after repeated failures.
    fn open() -> Breaker {
        let mut breaker = Breaker::default();
        let changes: Vec<_> = (0..5).map(|_| breaker.fail(0)).collect();
        assert_eq!(changes, [None, None, None, None, Some(Change::Opened { pause_ms: 2_000 })]);
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            (0..4).for_each(|_| assert_eq!(breaker.fail(0), None));
            assert_eq!(breaker.succeed(), None);
            assert!(breaker.admits(0));
        }
        let breaker = open();
        assert!(!breaker.admits(0) && !breaker.admits(1_999) && breaker.admits(2_000));
    }

    #[test]
    fn one_call_tries_after_the_pause() {
        let mut breaker = open();
        // A call that began before the pause changes nothing.
        assert_eq!(breaker.fail(1_000), None);
        breaker.begin(2_000);
        assert!(!breaker.admits(2_000) && !breaker.admits(1_000_000));
        assert_eq!(breaker.fail(3_000), Some(Change::Opened { pause_ms: 4_000 }));
        assert!(!breaker.admits(6_999) && breaker.admits(7_000));
        breaker.begin(7_000);
        breaker.abandon();
        assert!(breaker.admits(7_001), "another call may try");
        breaker.begin(7_001);
        assert_eq!(breaker.succeed(), Some(Change::Closed));
        assert!(breaker.admits(7_001));
        assert_eq!(breaker.fail(7_002), None, "it counts anew");
    }

    #[test]
    fn pauses_have_a_longest() {
        let (mut breaker, mut now_ms) = (open(), 0);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            now_ms += 1_000_000;
            breaker.begin(now_ms);
            let Some(Change::Opened { pause_ms }) = breaker.fail(now_ms) else { panic!("it opens") };
            pauses.push(pause_ms);
        }
        assert_eq!(pauses, [4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn retries_are_a_fifth_of_the_calls() {
        let mut budget = RetryBudget::default();
        assert_eq!((0..100).filter(|_| budget.take()).count(), 10);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.save();
            retries += usize::from(budget.take());
        }
        assert_eq!(retries, 200);
    }
}
