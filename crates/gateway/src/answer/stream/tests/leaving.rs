//! A client that leaves a stream pays for the upstream's work so far, no more and no less. The tests cover
//! every operation, every kind of upstream, and every byte after which a client may leave.

use hyper::body::Bytes;

use crate::Operation;
use crate::answer::StreamCleaner;
use crate::count::{Bounds, PricedParts, Settled};
use crate::dialect::Dialect;
use crate::request::{Injection, ModelRequest, Target, TargetOptions};
use crate::sse::Framer;
use catalog::{OnDisconnect, UpstreamKind};
use kernel::random::Random;

mod story;

use story::{End, Story, check};

/// A generator of pseudorandom numbers with a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> i64 {
        // The constants of Knuth's MMIX generator.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((self.0 >> 33) % end).unwrap()
    }
}

fn stories() -> impl Iterator<Item = Story> {
    let seed = u64::from_le_bytes(Random::system().bytes()) >> 8;
    println!("seed {seed}");
    let operations = Operation::ALL.into_iter().filter(|operation| *operation != Operation::Embeddings);
    let pairs = operations.flat_map(|operation| UpstreamKind::ALL.map(|kind| (operation, kind)));
    let served = pairs.filter(|(operation, kind)| Dialect::of(*kind).has(*operation));
    served.flat_map(move |(operation, kind)| {
        (0..3).map(move |more| {
            let mut draw = Draw(seed + more);
            Story::new(operation, kind, &mut |end| draw.below(end))
        })
    })
}

/// Ends each story at each of its bytes.
fn check_all(end: End) {
    for story in stories() {
        for bytes in 0..=story.length() {
            check(&story, bytes, end);
        }
    }
}

#[test]
fn no_byte_is_a_cheap_one_to_leave_after() {
    check_all(End::Leaves(OnDisconnect::Count));
    check_all(End::Leaves(OnDisconnect::Drain));
}

#[test]
fn stream_that_is_cancelled_at_once_costs_its_prompt_at_least_and_never_more_than_was_used() {
    check_all(End::Leaves(OnDisconnect::Cancel));
}

#[test]
fn stream_that_its_upstream_cuts_costs_what_was_counted_and_never_more_than_was_used() {
    check_all(End::UpstreamCloses);
}

#[test]
fn stream_in_two_pieces_costs_what_the_upstream_counts() {
    check_all(End::Completes);
}
