//! Server-sent events: splits a body that arrives in pieces of any size into events with their exact bytes
//! (HTML standard, section 9.2.6).
//!
//! The concatenated frames of a body equal the body. Lines end with LF, CRLF or a lone CR. After a CR, the
//! next byte is awaited, because it may be the LF of a CRLF.

use std::collections::VecDeque;
use std::ops::Range;

use hyper::body::Bytes;

use crate::memory::{LARGE_BYTES, grown};

/// Maximum number of bytes of an event, including its blank line. It equals the maximum of a plain answer,
/// because servers send images and whole responses as one event.
pub const MAX_EVENT_BYTES: usize = 64 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The error for an event with more bytes than allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event is too large")
    }
}

impl std::error::Error for TooLong {}

/// An event: everything up to and including a blank line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The unchanged bytes of the event.
    pub bytes: Bytes,
    /// The lines of `data:`, joined by LF; `None` if the event has no such line, like a comment.
    pub data: Option<Bytes>,
    /// The value of `event:`.
    pub event: Option<Bytes>,
    /// The position of the data in `bytes`, if it is a single line that isn't empty.
    data_at: Option<Range<usize>>,
    /// The position of the first line, after a byte order mark.
    start: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new()
    }
}

/// A parser that splits a body into frames.
#[derive(Debug)]
pub struct Framer {
    /// The beginning of the current event, from earlier pieces.
    carried: Vec<u8>,
    /// The pieces after the carried bytes.
    pieces: VecDeque<Bytes>,
    scanner: Scanner,
    has_started: bool,
    max_event_bytes: usize,
    is_too_long: bool,
}

impl Framer {
    /// Returns a framer for one body.
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// Returns a framer for events of at most this many bytes.
    pub fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            carried: Vec::new(),
            pieces: VecDeque::new(),
            scanner: Scanner::default(),
            has_started: false,
            max_event_bytes,
            is_too_long: false,
        }
    }

    /// Adds the next piece of the body.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// Returns the number of buffered bytes of an incomplete event.
    pub fn held_bytes(&self) -> usize {
        self.carried.len() + self.pieces.iter().map(Bytes::len).sum::<usize>()
    }

    /// Returns the next complete event; `None` if more of the body is needed.
    pub fn next_event(&mut self) -> Result<Option<Frame>, TooLong> {
        if self.is_too_long {
            return Err(TooLong);
        }
        while let Some(piece) = self.pieces.front_mut() {
            let end = self.scanner.find_end(piece);
            if self.carried.len() + end.unwrap_or(piece.len()) > self.max_event_bytes {
                self.is_too_long = true;
                return Err(TooLong);
            }
            let Some(end) = end else {
                self.carry();
                continue;
            };
            let head = piece.split_to(end);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            return Ok(Some(self.frame(head)));
        }
        Ok(None)
    }

    /// Returns the rest at the end of the body: an event without its blank line, which the standard ignores,
    /// or an event whose blank line is a lone CR. Call this only after reading all events.
    pub fn finish(&mut self) -> Option<Frame> {
        while !self.pieces.is_empty() {
            self.carry();
        }
        let has_rest = !self.carried.is_empty();
        has_rest.then(|| self.frame(Bytes::new()))
    }

    /// Appends the first piece to the carried bytes.
    fn carry(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            let length = self.carried.len() + piece.len();
            if length > self.carried.capacity() && length >= LARGE_BYTES {
                self.carried.reserve_exact(grown(length) - self.carried.len());
            }
            self.carried.extend_from_slice(&piece);
        }
    }

    /// Returns the frame made of the carried bytes and `head`, without a copy if no bytes were carried.
    fn frame(&mut self, head: Bytes) -> Frame {
        self.scanner = Scanner::default();
        let is_first = !std::mem::replace(&mut self.has_started, true);
        let bytes = if self.carried.is_empty() {
            head
        } else {
            self.carried.extend_from_slice(&head);
            Bytes::from(std::mem::take(&mut self.carried))
        };
        Frame::read(bytes, is_first)
    }
}

/// A scanner for the blank line that ends an event.
#[derive(Clone, Copy, Debug)]
struct Scanner {
    /// `true` if the current line is empty so far.
    is_blank: bool,
    /// `true` if the last byte was a CR.
    after_cr: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { is_blank: true, after_cr: false }
    }
}

impl Scanner {
    /// Returns the position after the event that ends in this piece.
    fn find_end(&mut self, piece: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if std::mem::take(&mut self.after_cr) {
                let end = if byte == b'\n' { at + 1 } else { at };
                if std::mem::replace(&mut self.is_blank, true) {
                    return Some(end);
                }
                at = end;
                continue;
            }
            match byte {
                b'\r' => self.after_cr = true,
                b'\n' if self.is_blank => return Some(at + 1),
                b'\n' => self.is_blank = true,
                _ => {
                    self.is_blank = false;
                    let rest = piece.get(at..).unwrap_or_default();
                    at += memchr::memchr2(b'\n', b'\r', rest)?;
                    continue;
                }
            }
            at += 1;
        }
        None
    }
}

impl Frame {
    /// Returns the first event in these bytes.
    pub(crate) fn of(bytes: Bytes) -> Option<Self> {
        let mut framer = Framer::new();
        framer.push(bytes);
        framer.next_event().ok()?
    }

    /// Reads the fields of an event. A byte order mark counts only at the start of a body.
    fn read(bytes: Bytes, is_first: bool) -> Self {
        let has_mark = is_first && bytes.starts_with(BYTE_ORDER_MARK);
        let start = if has_mark { BYTE_ORDER_MARK.len() } else { 0 };
        let mut frame = Self { bytes, data: None, event: None, data_at: None, start };
        let (mut data, mut more_data): (Option<Range<usize>>, Option<Vec<u8>>) = (None, None);
        for line in (Lines { bytes: &frame.bytes, at: start }) {
            let (name, value) = field(&frame.bytes, line);
            match (name, &data) {
                (b"event", _) => frame.event = Some(frame.bytes.slice(value)),
                (b"data", None) => data = Some(value),
                (b"data", Some(first)) => {
                    let part = |range: &Range<usize>| frame.bytes.get(range.clone()).unwrap_or_default();
                    let joined = more_data.get_or_insert_with(|| part(first).to_vec());
                    joined.push(b'\n');
                    joined.extend_from_slice(part(&value));
                }
                _ => {}
            }
        }
        match more_data {
            Some(joined) => frame.data = Some(Bytes::from(joined)),
            None => {
                frame.data = data.clone().map(|range| frame.bytes.slice(range));
                // A field without a value has no text to replace.
                frame.data_at = data.filter(|range| !range.is_empty());
            }
        }
        frame
    }

    /// Returns the bytes of this event with other data, which must not contain a line end. Everything else
    /// stays unchanged, except that data of several lines becomes one line.
    pub fn with_data(&self, data: &[u8]) -> Bytes {
        let replaced = self.data_at.as_ref().map_or(0, Range::len);
        let mut edited = Vec::with_capacity(self.bytes.len() - replaced + data.len());
        if let Some(Range { start, end }) = self.data_at {
            edited.extend_from_slice(self.bytes.get(..start).unwrap_or_default());
            edited.extend_from_slice(data);
            edited.extend_from_slice(self.bytes.get(end..).unwrap_or_default());
            return Bytes::from(edited);
        }
        let mut is_written = false;
        let mut kept = 0;
        for line in (Lines { bytes: &self.bytes, at: self.start }) {
            let Range { start, end } = line.clone();
            let (name, value) = field(&self.bytes, line);
            if name != b"data" {
                continue;
            }
            edited.extend_from_slice(self.bytes.get(kept..start).unwrap_or_default());
            kept = end;
            if std::mem::replace(&mut is_written, true) {
                // The line end is skipped, too. Otherwise a blank line would remain.
                kept += line_end(self.bytes.get(end..).unwrap_or_default());
                continue;
            }
            let has_colon = value.start > start + name.len();
            let before = if has_colon { start..value.start } else { start..end };
            edited.extend_from_slice(self.bytes.get(before).unwrap_or_default());
            edited.extend_from_slice(if has_colon { b"" } else { b": " });
            edited.extend_from_slice(data);
        }
        edited.extend_from_slice(self.bytes.get(kept..).unwrap_or_default());
        Bytes::from(edited)
    }
}

/// The lines of an event, without their ends.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = self.at..self.at + length;
        self.at = line.end + line_end(rest.get(length..).unwrap_or_default());
        Some(line)
    }
}

/// Returns the number of bytes of the line end at the start of this text.
fn line_end(text: &[u8]) -> usize {
    match text {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => 0,
    }
}

/// Returns the name of the field in this line and the position of its value. The name of a comment is empty.
fn field(bytes: &[u8], line: Range<usize>) -> (&[u8], Range<usize>) {
    let text = bytes.get(line.clone()).unwrap_or_default();
    let Some(colon) = memchr::memchr(b':', text) else {
        return (text, line.end..line.end);
    };
    let blank = usize::from(text.get(colon + 1) == Some(&b' '));
    (text.get(..colon).unwrap_or_default(), line.start + colon + 1 + blank..line.end)
}

#[cfg(test)]
mod tests;
