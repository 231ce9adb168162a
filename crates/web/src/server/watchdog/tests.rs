use futures_util::FutureExt;

use super::*;

const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(10),
    write: Duration::from_secs(30),
    idle: Duration::from_secs(150),
};

/// Runs the checks like a connection. Returns the time until the timeout in seconds, and the outcome; 3,600
/// if the connection doesn't time out within an hour.
fn timeout_of(watchdog: &Watchdog, idle: &mut IdleState) -> (u64, Liveness) {
    let mut at = watchdog.first_check_at(&TIMEOUTS);
    while at < watchdog.opened + Duration::from_secs(3_600) {
        match watchdog.check(&TIMEOUTS, idle, at) {
            Liveness::CheckAt(next) => {
                assert!(next > at && next <= at + TIMEOUTS.shortest());
                at = next;
            }
            finding => return ((at - watchdog.opened).as_secs(), finding),
        }
    }
    (3_600, Liveness::CheckAt(at))
}

fn check(watchdog: &Watchdog) -> (u64, Liveness) {
    timeout_of(watchdog, &mut IdleState::default())
}

#[test]
fn each_state_has_its_timeout() {
    let watchdog = Watchdog::new();
    assert_eq!(check(&watchdog), (10, Liveness::TimedOut("it sends nothing")));
    watchdog.on_read();
    watchdog.on_read_pending();
    assert_eq!(check(&watchdog), (10, Liveness::SlowHead));
    watchdog.begin_request();
    assert_eq!(check(&watchdog).0, 3_600, "a request takes what it takes");
    watchdog.on_read_pending();
    watchdog.start_timer(&watchdog.write_since_ms);
    assert_eq!(check(&watchdog).0, 30, "a stream that the client does not read");
    watchdog.on_flushed();
    assert_eq!(check(&watchdog).0, 3_600, "a stream that the client reads takes what it takes");
    watchdog.end_response();
    watchdog.start_timer(&watchdog.write_since_ms);
    assert_eq!(check(&watchdog), (30, Liveness::TimedOut("it does not read its response")));
    watchdog.on_flushed();
    // The first check, after ten seconds, finds the connection idle.
    assert_eq!(check(&watchdog), (160, Liveness::TimedOut("it has been idle for too long")));
    watchdog.on_read();
    assert_eq!(check(&watchdog).0, 3_600, "nothing is waited for yet");
    watchdog.on_read_pending();
    assert_eq!(check(&watchdog), (10, Liveness::SlowHead), "the second head has its own beginning");
}

#[test]
fn request_between_two_checks_restarts_the_idle_timeout() {
    let watchdog = Watchdog::new();
    let mut idle = IdleState::default();
    let request = || {
        watchdog.on_read();
        watchdog.begin_request();
        watchdog.end_response();
        watchdog.on_flushed();
    };
    let at = |seconds| watchdog.opened + Duration::from_secs(seconds);
    request();
    for seconds in [10, 100, 159] {
        assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(seconds)), Liveness::CheckAt(_)));
    }
    request();
    assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(161)), Liveness::CheckAt(_)));
    assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(310)), Liveness::CheckAt(_)));
    // Bytes that have arrived by now are read before the next check.
    let again = watchdog.check(&TIMEOUTS, &mut idle, at(311));
    assert_eq!(again, Liveness::CheckAt(at(311) + IDLE_GRACE));
    request();
    assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(312)), Liveness::CheckAt(_)));
    assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(462)), Liveness::CheckAt(_)));
    assert!(matches!(watchdog.check(&TIMEOUTS, &mut idle, at(463)), Liveness::TimedOut(_)));
}

/// A large body would otherwise occupy a thread for as long as its bytes arrive.
#[tokio::test]
async fn other_tasks_run_while_a_large_body_is_read_or_written() {
    use kernel::io_turns::MAX_TURN_BYTES;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const BYTES: usize = 16 * MAX_TURN_BYTES;
    let (near, mut far) = tokio::io::duplex(2 * BYTES);
    let mut stream = WatchedStream::new(near, Watchdog::new());
    let turns = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut bytes = vec![1; BYTES];
    far.write_all(&bytes).await.unwrap();
    for is_read in [true, false] {
        let before = turns.load(Ordering::Relaxed);
        if is_read {
            // The size of hyper's buffer.
            for part in bytes.chunks_mut(MAX_TURN_BYTES) {
                stream.read_exact(part).await.unwrap();
            }
        } else {
            stream.write_all(&bytes).await.unwrap();
        }
        let turns = turns.load(Ordering::Relaxed) - before;
        assert!((14..=20).contains(&turns), "is_read: {is_read}, {turns}");
    }
    other.abort();
}

/// A connection that sends one request after another never waits behind large transfers.
#[tokio::test]
async fn small_answers_stand_in_no_line() {
    use kernel::io_turns::MAX_TURN_BYTES;
    use tokio::io::AsyncWriteExt;

    const ANSWER_BYTES: usize = 4_000;
    let (near, _far) = tokio::io::duplex(8 * MAX_TURN_BYTES);
    let mut stream = WatchedStream::new(near, Watchdog::new());
    let answers = async {
        for _ in 0..4 * MAX_TURN_BYTES / ANSWER_BYTES {
            let _head = stream.watchdog.begin_request();
            stream.write_all(&[1; ANSWER_BYTES]).await.unwrap();
        }
    };
    assert!(answers.now_or_never().is_some(), "an answer waited for others");
}
