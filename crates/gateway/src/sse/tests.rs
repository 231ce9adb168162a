use hyper::body::Bytes;
use proptest::prelude::*;

use super::*;

/// Returns the frames of a body that arrives in these pieces, and the rest.
fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, Option<Frame>) {
    let mut framer = Framer::new();
    let mut frames = Vec::new();
    for piece in pieces {
        framer.push(Bytes::copy_from_slice(piece));
        while let Some(frame) = framer.next_event().unwrap() {
            frames.push(frame);
        }
    }
    (frames, framer.finish())
}

/// Returns the bytes, data and name of each event of a body, and then of the rest.
fn read(body: &str) -> Vec<(String, Option<String>, Option<String>)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let (frames, rest) = frames(&[body.as_bytes()]);
    let parts = |f: &Frame| (text(&f.bytes), f.data.as_ref().map(text), f.event.as_ref().map(text));
    frames.iter().chain(&rest).map(parts).collect()
}

fn one(bytes: &str, data: Option<&str>, event: Option<&str>) -> (String, Option<String>, Option<String>) {
    (bytes.to_owned(), data.map(str::to_owned), event.map(str::to_owned))
}

#[test]
fn fields_are_read() {
    for (body, data, event) in [
        ("data: a\n\n", Some("a"), None),
        ("data:a\r\n\r\n", Some("a"), None),
        ("data:  a \r\r", Some(" a "), None),
        ("data\n\n", Some(""), None),
        ("data:\ndata\n\n", Some("\n"), None),
        ("data: {\r\ndata:  1\ndata: }\r\n\n", Some("{\n 1\n}"), None),
        ("\u{feff}data: a\n\n", Some("a"), None),
        ("event: delta\ndata: a\n\n", Some("a"), Some("delta")),
        ("data: a\nevent: x\nevent:y\nid: 7\nretry: 1\n\n", Some("a"), Some("y")),
        (": waiting\n\n", None, None),
        (":data: a\n\n", None, None),
        ("Data: a\n data: b\ndatax: c\n\n", None, None),
        ("data: \u{feff}é\u{2028}\u{85}x\n\n", Some("\u{feff}é\u{2028}\u{85}x"), None),
        ("\n", None, None),
        ("\r", None, None),
        ("data: cut", Some("cut"), None),
    ] {
        assert_eq!(read(body), [one(body, data, event)], "{body:?}");
    }
}

#[test]
fn events_end_at_blank_lines() {
    let body = "data: a\n\ndata: b\r\n\r\n: c\n\r\n\r\ndata: d\r\r\ndata: e\n\rdata: f\n";
    let expected = [
        one("data: a\n\n", Some("a"), None),
        one("data: b\r\n\r\n", Some("b"), None),
        one(": c\n\r\n", None, None),
        one("\r\n", None, None),
        one("data: d\r\r\n", Some("d"), None),
        one("data: e\n\r", Some("e"), None),
        one("data: f\n", Some("f"), None),
    ];
    assert_eq!(read(body), expected);
    // After the start of a body, a byte order mark is text.
    assert_eq!(read("\n\u{feff}data: a\n\n")[1], one("\u{feff}data: a\n\n", None, None));
    assert_eq!(read(""), []);
}

#[test]
fn events_come_as_soon_as_they_are_complete() {
    let mut framer = Framer::new();
    framer.push(Bytes::from_static(b"data: a\n"));
    assert_eq!(framer.next_event(), Ok(None));
    framer.push(Bytes::from_static(b"\ndata: b\n\nda"));
    assert_eq!(framer.next_event().unwrap().unwrap().bytes, "data: a\n\n");
    assert_eq!(framer.next_event().unwrap().unwrap().bytes, "data: b\n\n");
    assert_eq!(framer.next_event(), Ok(None));
    assert_eq!(framer.finish().unwrap().bytes, "da");
    assert_eq!(framer.finish(), None);
}

#[test]
fn an_event_in_one_piece_is_not_copied() {
    let piece = Bytes::from(b"data: a\n\ndata: b\n\n".to_vec());
    let mut framer = Framer::new();
    framer.push(piece.clone());
    for range in [0..9, 9..18] {
        let frame = framer.next_event().unwrap().unwrap();
        assert_eq!(frame.bytes.as_ptr(), piece.slice(range.clone()).as_ptr());
        assert_eq!(frame.data.unwrap().as_ptr(), piece.slice(range.start + 6..).as_ptr());
    }
}

#[test]
fn an_event_is_limited() {
    const MAX: usize = 1 << 16;
    let body = |length: usize| format!("data: {}\n\n", "x".repeat(length - 8)).into_bytes();
    for size in [1, 7, MAX] {
        let run = |length: usize| {
            let mut framer = Framer::with_limit(MAX);
            let body = body(length);
            body.chunks(size.max(body.len() / 1_000)).for_each(|piece| {
                framer.push(Bytes::copy_from_slice(piece));
            });
            (framer.next_event().map(|frame| frame.unwrap().bytes.len()), framer.next_event())
        };
        assert_eq!(run(MAX), (Ok(MAX), Ok(None)));
        assert_eq!(run(MAX + 1), (Err(TooLong), Err(TooLong)));
    }
    // The event doesn't end.
    let mut framer = Framer::with_limit(MAX);
    framer.push(Bytes::from(vec![b'x'; MAX]));
    assert_eq!(framer.next_event(), Ok(None));
    framer.push(Bytes::from_static(b"x"));
    assert_eq!(framer.next_event(), Err(TooLong));
}

#[test]
fn data_is_replaced() {
    for (body, expected) in [
        ("data: a\n\n", "data: {}\n\n"),
        ("event: x\r\ndata:a\r\n: c\r\n\r\n", "event: x\r\ndata:{}\r\n: c\r\n\r\n"),
        ("\u{feff}data\rdata: b\r\nid: 1\ndata: c\n\n", "\u{feff}data: {}\rid: 1\n\n"),
        ("id: 1\ndata: a\ndata: b\n\n", "id: 1\ndata: {}\n\n"),
        ("data: a\ndata: b", "data: {}\n"),
        (": c\n\n", ": c\n\n"),
    ] {
        let (frames, rest) = frames(&[body.as_bytes()]);
        assert_eq!(frames.iter().chain(&rest).next().unwrap().with_data(b"{}"), expected, "{body:?}");
    }
}

/// Returns valid and invalid bodies made of the tokens that a framer distinguishes.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => Just("\n"), 3 => Just("\r\n"), 2 => Just("\r"), 4 => Just("data: "), 2 => Just("data:"),
        1 => Just("data"), 1 => Just("event: e"), 1 => Just(": c"), 1 => Just("\u{feff}"), 2 => Just("é{}"),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events(body in bodies(), cuts in proptest::collection::vec(0_usize..200, 0..12)) {
        let whole = frames(&[&body]);
        let all = whole.0.iter().chain(&whole.1);
        prop_assert_eq!(all.flat_map(|frame| frame.bytes.to_vec()).collect::<Vec<_>>(), body.clone());
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&frames(&pieces), &whole);
        let bytes: Vec<_> = body.chunks(1).collect();
        prop_assert_eq!(&frames(&bytes), &whole);
    }

    #[test]
    fn data_that_is_replaced_is_read_again(body in bodies()) {
        let (frames, _) = frames(&[&body]);
        for frame in frames.iter().filter(|frame| frame.data.is_some()) {
            let again = Frame::read(frame.with_data(b"{\"a\":1}"), frame.start > 0);
            prop_assert_eq!(again.data.as_deref(), Some(b"{\"a\":1}".as_slice()));
            prop_assert_eq!(&again.event, &frame.event);
        }
    }
}
