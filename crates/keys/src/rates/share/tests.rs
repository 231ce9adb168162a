//! Tests of replicas, their pool and a reference meter that counts every call, in one thread, with calls,
//! pauses and failures in any order.

use super::*;
use proptest::prelude::*;

const START: i64 = 1_700_000_000_000;
const SECOND: i64 = 1_000;

/// The textbook form of a single meter: the theoretical arrival time. Its unit is a millisecond divided by
/// the rate, so that it isn't rounded.
struct Reference {
    rate: i128,
    arrival: i128,
}

impl Reference {
    const MINUTE: i128 = 60_000;

    fn new(rate: u32) -> Self {
        Self { rate: i128::from(rate), arrival: 0 }
    }

    /// Counts a call unconditionally. Returns the excess over the limit, in milliseconds of the rate.
    fn count(&mut self, now_ms: i64) -> i128 {
        let now = i128::from(now_ms) * self.rate;
        self.arrival = self.arrival.max(now) + Self::MINUTE;
        (self.arrival - now - Self::MINUTE * self.rate) / self.rate
    }

    fn would_allow(&self, now_ms: i64) -> bool {
        let now = i128::from(now_ms) * self.rate;
        self.arrival.max(now) + Self::MINUTE - now <= Self::MINUTE * self.rate
    }
}

struct Replicas {
    rate: u32,
    now: i64,
    pool: Pool,
    shares: Vec<Share>,
    /// Loans that the replica hasn't received yet, by replica.
    in_flight: Vec<Option<(PoolRequest, Loan)>>,
    reference: Reference,
    admitted: u32,
    exchanges: u32,
    max_excess: i128,
}

impl Replicas {
    fn new(count: usize, rate: u32) -> Self {
        Self {
            rate,
            now: START,
            pool: Pool::new(rate, START),
            shares: vec![Share::new(rate, START); count],
            in_flight: vec![None; count],
            reference: Reference::new(rate),
            admitted: 0,
            exchanges: 0,
            max_excess: i128::MIN,
        }
    }

    fn borrow(&mut self, replica: usize, call_waits: bool) {
        let request = self.shares[replica].request(call_waits, self.now);
        let loan = request.apply(&mut self.pool, self.rate, self.now);
        self.exchanges += 1;
        self.in_flight[replica] = Some((request, loan));
    }

    fn answer(&mut self, replica: usize) {
        if let Some((_, loan)) = self.in_flight[replica].take() {
            let pool = self.pool;
            self.shares[replica].settle(&pool, loan, self.now);
        }
    }

    /// Makes one call. If it is `slow`, the answer to a renewal arrives later.
    fn call(&mut self, replica: usize, slow: bool) -> Result<Allowance, RateLimit> {
        let mut decision = self.shares[replica].check(self.rate, self.now);
        if decision == Decision::Borrow {
            self.answer(replica);
            decision = self.shares[replica].check(self.rate, self.now);
        }
        if decision == Decision::Borrow {
            self.borrow(replica, true);
            self.answer(replica);
            decision = self.shares[replica].check(self.rate, self.now);
        }
        let result = match decision {
            Decision::Final(result) => result,
            Decision::Renew(allowed) => {
                self.borrow(replica, false);
                if !slow {
                    self.answer(replica);
                }
                Ok(allowed)
            }
            Decision::Borrow => {
                panic!("nothing was lent, and the share doesn't tell why: {:?}", self.shares[replica])
            }
        };
        if result.is_ok() {
            self.admitted += 1;
            self.max_excess = self.max_excess.max(self.reference.count(self.now));
        }
        result
    }

    fn return_leases(&mut self, replica: usize) {
        if let Some(request) = self.shares[replica].return_lapsed(false, self.now) {
            request.apply(&mut self.pool, self.rate, self.now);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Calls { replica: usize, count: u32, slow: bool },
    Wait(i64),
    GiveBack(usize),
    Die(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_usize..3, 1_u32..60, any::<bool>()).prop_map(|(replica, count, slow)| Step::Calls { replica, count, slow }),
        4 => (0_i64..400).prop_map(Step::Wait),
        2 => (0_i64..7_000).prop_map(Step::Wait),
        2 => (0_usize..3).prop_map(Step::GiveBack),
        1 => (0_usize..3).prop_map(Step::Die),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn replicas_together_keep_to_the_limit(rate in prop_oneof![1_u32..40, 1_u32..1_000], steps in steps()) {
        let mut replicas = Replicas::new(3, rate);
        for step in steps {
            match step {
                Step::Calls { replica, count, slow } => {
                    for _ in 0..count {
                        if let Err(refused) = replicas.call(replica, slow) {
                            prop_assert!((1..=70_000).contains(&refused.retry_after_ms), "{refused:?}");
                        }
                    }
                }
                Step::Wait(ms) => replicas.now += ms,
                Step::GiveBack(replica) => replicas.return_leases(replica),
                Step::Die(replica) => {
                    replicas.in_flight[replica] = None;
                    replicas.shares[replica] = Share::new(rate, replicas.now);
                }
            }
        }
        prop_assert!(replicas.max_excess <= 2_000, "{} ms of the rate beyond the limit", replicas.max_excess);
    }

    /// Calls that are so rare that each one borrows are counted exactly from the first call on, with any
    /// number of replicas.
    #[test]
    fn rare_calls_are_exact(rate in 1_u32..13, calls in prop::collection::vec((0_usize..3, 0_i64..40_000), 1..100)) {
        let mut replicas = Replicas::new(3, rate);
        for (replica, wait) in calls {
            replicas.now += wait;
            let expected = replicas.reference.would_allow(replicas.now);
            prop_assert_eq!(replicas.call(replica, false).is_ok(), expected);
        }
    }

    /// A single replica counts like a single meter, as long as the meter doesn't become empty in the
    /// meantime.
    #[test]
    fn one_replica_is_exact(rate in 1_u32..1_000, waits in prop::collection::vec(0_i64..300, 1..400)) {
        let mut replicas = Replicas::new(1, rate);
        for _ in 0..rate {
            prop_assert!(replicas.call(0, false).is_ok());
        }
        for wait in waits {
            replicas.now += wait;
            let expected = replicas.reference.would_allow(replicas.now);
            let result = replicas.call(0, false);
            prop_assert_eq!(result.is_ok(), expected);
            if let Err(refused) = result {
                let (now, retry) = (replicas.now, refused.retry_after_ms);
                prop_assert!(!replicas.reference.would_allow(now + retry - 1));
                prop_assert!(replicas.reference.would_allow(now + retry));
            }
        }
    }
}

/// Makes `per_second` evenly spaced calls on each replica, for `seconds` seconds. Returns the numbers of
/// admitted calls and of exchanges.
fn run(rate: u32, per_second: &[i64], seconds: i64) -> (u32, u32) {
    let mut replicas = Replicas::new(per_second.len(), rate);
    for ms in 0..seconds * SECOND {
        replicas.now = START + ms;
        for (replica, per_second) in per_second.iter().enumerate() {
            let (before, after) = (ms * per_second / SECOND, (ms + 1) * per_second / SECOND);
            for _ in before..after {
                replicas.call(replica, false).ok();
            }
            if ms % 500 == 0 {
                replicas.return_leases(replica);
            }
        }
    }
    assert!(replicas.max_excess <= 2_000, "{}", replicas.max_excess);
    (replicas.admitted, replicas.exchanges)
}

#[test]
fn every_replica_gets_its_share_with_few_exchanges() {
    // Within the limit, every call is admitted, no matter how calls are distributed.
    for per_second in [&[10][..], &[5, 5], &[9, 1], &[3, 3, 4]] {
        let (admitted, exchanges) = run(600, per_second, 60);
        assert_eq!(admitted, 600, "{per_second:?}");
        assert!(exchanges <= 17 * u32::try_from(per_second.len()).unwrap(), "{per_second:?}: {exchanges}");
    }
    // Beyond the limit, at least the burst and the rate are admitted, minus one lease for each replica.
    for per_second in [&[100][..], &[50, 50], &[90, 10], &[100, 100, 100]] {
        let (admitted, exchanges) = run(600, per_second, 60);
        let expected = 600 + 600 - max_lease(600) * u32::try_from(per_second.len()).unwrap();
        assert!(admitted >= expected, "{per_second:?}: {admitted}");
        assert!(exchanges <= 60 * u32::try_from(per_second.len()).unwrap(), "{per_second:?}: {exchanges}");
    }
    // A few calls cost one exchange each, and leave no unused lease.
    assert_eq!(run(60, &[1], 120).0, 120);
}

#[test]
fn bursts_waste_nothing() {
    // The first replica gets 22 calls at once every 2.5 s, and the second every 4 s. These are 858 calls per
    // minute, with a limit of 1,000.
    let mut replicas = Replicas::new(2, 1_000);
    for ms in (0..300 * SECOND).step_by(500) {
        replicas.now = START + ms;
        for (replica, every) in [(0, 2_500), (1, 4_000)] {
            replicas.return_leases(replica);
            if ms % every == 0 {
                for _ in 0..22 {
                    assert!(replicas.call(replica, true).is_ok(), "{ms}");
                }
            }
        }
    }
}

#[test]
fn lease_of_a_silent_replica_counts_as_used() {
    let mut replicas = Replicas::new(2, 600);
    for _ in 0..25 {
        replicas.call(0, false).unwrap();
    }
    // The first replica has borrowed 71 requests, used 25, and doesn't report anything else. The other
    // replica gets the rest immediately, and later the requests that drain.
    let mut rest = 0;
    while replicas.call(1, false).is_ok() {
        rest += 1;
    }
    assert_eq!(rest, 600 - 71);
    replicas.now += 12 * SECOND;
    let before = replicas.admitted;
    while replicas.call(1, false).is_ok() {}
    let later = replicas.admitted - before;
    assert!((100..=120).contains(&later), "{later}");
    replicas.now += 70 * SECOND;
    let before = replicas.admitted;
    while replicas.call(1, false).is_ok() {}
    assert_eq!(replicas.admitted - before, 600);
}

#[test]
fn a_call_taken_back_is_not_counted() {
    let mut replicas = Replicas::new(1, 60);
    for _ in 0..200 {
        replicas.call(0, false).unwrap();
        replicas.shares[0].give_back(START);
    }
    for left in (0..60).rev() {
        assert_eq!(replicas.call(0, false).unwrap().remaining, left);
    }
    assert_eq!(replicas.call(0, false).unwrap_err().retry_after_ms, SECOND);
}

#[test]
fn a_changed_limit_keeps_the_used_part() {
    let mut replicas = Replicas::new(2, 1_000);
    for turn in 0..500 {
        replicas.call(turn % 2, false).unwrap();
    }
    replicas.rate = 10;
    let mut admitted = 0;
    while replicas.call(0, false).is_ok() {
        admitted += 1;
    }
    assert!((1..=5).contains(&admitted), "{admitted}");
}
