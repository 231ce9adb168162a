//! Leaving a stream costs at least nine tenths of the upstream's work until then, by its own count, and never
//! more than all of it. A stream that its upstream cuts never costs more than that, and one that arrives in two
//! pieces costs the upstream's count. All of this holds for any stream, and any byte at which it is left or cut.

#![cfg_attr(feature = "engine", no_main)]

use catalog::{OnDisconnect, UpstreamKind};
use fuzz::fuzz_target;
use gateway::answer::StreamCleaner;
use gateway::count::{Bounds, PricedParts, Settled};
use gateway::request::{Injection, ModelRequest, Target, TargetOptions};
use gateway::sse::Framer;
use gateway::{Dialect, Operation};
use hyper::body::Bytes;

#[path = "../../crates/gateway/src/answer/stream/tests/leaving/story.rs"]
mod story;

use story::{End, Story, check};

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.iter().copied();
    let mut draw = |end: u64| {
        let number = u64::from(bytes.next().unwrap_or(0)) << 8 | u64::from(bytes.next().unwrap_or(0));
        i64::try_from(number % end).expect("two bytes")
    };
    let operation = match draw(4) {
        0 => Operation::ChatCompletions,
        1 => Operation::Completions,
        2 => Operation::Responses,
        _ => Operation::Messages,
    };
    let kinds = UpstreamKind::ALL;
    let kind = kinds[usize::try_from(draw(kinds.len() as u64)).expect("a small number")];
    if !Dialect::of(kind).has(operation) {
        return;
    }
    let place = usize::try_from(draw(1 << 16)).expect("a small number");
    let end = match draw(5) {
        0 => End::Leaves(OnDisconnect::Count),
        1 => End::Leaves(OnDisconnect::Cancel),
        2 => End::Leaves(OnDisconnect::Drain),
        3 => End::UpstreamCloses,
        _ => End::Completes,
    };
    let story = Story::new(operation, kind, &mut draw);
    check(&story, place % (story.length() + 1), end);
});
