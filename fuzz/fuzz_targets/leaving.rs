//! Checks the cost of a stream whose client disconnects, for any stream and at any point. By the upstream's
//! own count, it is at least nine tenths of the work done until then, and never more than all of it.

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

use story::{Story, check};

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
    let on_disconnect = if draw(2) == 0 { OnDisconnect::Count } else { OnDisconnect::Cancel };
    let story = Story::new(operation, kind, &mut draw);
    check(&story, place % (story.length() + 1), on_disconnect);
});
