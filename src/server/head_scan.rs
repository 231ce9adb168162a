//! Looks for `Content-Length` in the head of a request as it comes. Where there is a `Transfer-Encoding` too, hyper drops
//! the length without telling, and such a request has to be refused (RFC 9112, section 6.1).

/// The start of a line that says how long the body is.
const NAME: &[u8] = b"content-length:";

/// The part of a head that has come.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// The start of the line that is coming.
    start: [u8; NAME.len()],
    start_length: usize,
    has_lines: bool,
    has_ended: bool,
    names_length: bool,
}

impl HeadScan {
    /// Takes in what came next; whether a length has been named in this head.
    pub fn see(&mut self, mut bytes: &[u8]) -> bool {
        while !self.has_ended && !bytes.is_empty() {
            let (line, rest, is_whole) = match memchr::memchr(b'\n', bytes) {
                Some(at) => {
                    let (line, rest) = bytes.split_at(at);
                    (line, rest.get(1..).unwrap_or_default(), true)
                }
                None => (bytes, [].as_slice(), false),
            };
            // Most lines come whole, and their first letter tells that they are another header.
            let first = line.first().copied();
            if is_whole && self.start_length == 0 && !matches!(first, None | Some(b'\r' | b'c' | b'C')) {
                self.has_lines = true;
                bytes = rest;
                continue;
            }
            for (to, from) in self.start.iter_mut().skip(self.start_length).zip(line) {
                *to = *from;
            }
            self.start_length = (self.start_length + line.len()).min(NAME.len());
            if is_whole {
                self.end_line();
            }
            bytes = rest;
        }
        self.names_length
    }

    fn end_line(&mut self) {
        let start = self.start.get(..self.start_length).unwrap_or_default();
        if matches!(start, b"" | b"\r") {
            // Blank lines may stand before a request.
            self.has_ended = self.has_lines;
        } else {
            self.names_length |= self.has_lines && start.eq_ignore_ascii_case(NAME);
            self.has_lines = true;
        }
        self.start_length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_found_in_the_head_alone_however_it_is_cut() {
        let cases = [
            ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n", true),
            ("\r\n\nPOST / HTTP/1.1\r\nContent-LENGTH:5\r\n\r\n", true),
            ("POST / HTTP/1.1\ncontent-length:\n\n", true),
            ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nContent-Length: 5\r\nx: y\r\n\r\nabc", true),
            ("POST / HTTP/1.1\r\nx: y\r\n\r\ncontent-length: 5\r\n\r\n", false),
            ("content-length: 5 HTTP/1.1\r\nx: content-length: 5\r\n\r\n", false),
            ("POST / HTTP/1.1\r\nx-content-length: 5\r\ncontent-lengths: 5\r\n\r\n", false),
            ("POST / HTTP/1.1\r\n\r\n", false),
        ];
        for (text, found) in cases {
            for size in [1, 2, 7, 1000] {
                let mut scan = HeadScan::default();
                let found_now = text.as_bytes().chunks(size).map(|part| scan.see(part)).last();
                assert_eq!(found_now, Some(found), "{text:?} in parts of {size}");
            }
        }
    }
}
