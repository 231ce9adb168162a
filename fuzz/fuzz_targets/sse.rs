//! Checks that a body results in the same events, regardless of how it is split. A second implementation
//! reads the whole text line by line and must find the same events. The bytes of the events must be the bytes
//! of the body.

#![cfg_attr(feature = "engine", no_main)]

use arbitrary::Arbitrary;
use fuzz::fuzz_target;
use gateway::sse::{Frame, Framer, MAX_EVENT_BYTES};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The lengths of the first pieces. The last piece is the rest.
    lengths: Vec<u8>,
    body: &'a [u8],
}

fuzz_target!(|input: Input| {
    if input.body.len() > MAX_EVENT_BYTES {
        return;
    }
    let mut framer = Framer::new();
    let mut frames = Vec::new();
    let mut rest = input.body;
    for length in input.lengths.into_iter().map(usize::from).chain([usize::MAX]) {
        let (piece, more) = rest.split_at(length.min(rest.len()));
        rest = more;
        framer.push(piece.to_vec().into());
        while let Some(frame) = framer.next_event().expect("a short event") {
            frames.push(frame);
        }
    }
    frames.extend(framer.finish());
    assert_eq!(frames.iter().flat_map(|frame| frame.bytes.to_vec()).collect::<Vec<_>>(), input.body);
    let events: Vec<_> = frames.iter().map(parts).collect();
    assert_eq!(events, events_of(input.body));
});

/// The data and the name of an event.
type Event = (Option<Vec<u8>>, Option<Vec<u8>>);

fn parts(frame: &Frame) -> Event {
    (frame.data.as_ref().map(|data| data.to_vec()), frame.event.as_ref().map(|event| event.to_vec()))
}

/// Applies the rules of the HTML standard to the whole body. Also counts events without data, and an
/// incomplete event after the last blank line.
fn events_of(body: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut event, mut is_open): (Event, bool) = ((None, None), false);
    for (number, line) in lines(body).into_iter().enumerate() {
        let is_blank = line.is_empty();
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(marked) if number == 0 => marked,
            _ => line,
        };
        if is_blank {
            events.push(std::mem::take(&mut event));
            is_open = false;
            continue;
        }
        is_open = true;
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[..0]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match (name, &mut event.0) {
            (b"data", Some(data)) => data.extend([b"\n", value].concat()),
            (b"data", none) => *none = Some(value.to_vec()),
            (b"event", _) => event.1 = Some(value.to_vec()),
            _ => {}
        }
    }
    if is_open {
        events.push(event);
    }
    events
}

fn lines(body: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let length = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        lines.push(&rest[..length]);
        rest = &rest[length..];
        rest = rest.strip_prefix(b"\r\n").or(rest.get(1..)).unwrap_or_default();
    }
    lines
}
