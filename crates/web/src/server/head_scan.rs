//! Scans the head of an arriving request for `Content-Length`. If the head also has a `Transfer-Encoding`,
//! hyper silently removes the length, and such a request must be refused (RFC 9112, section 6.1).

/// The name of the header with the length of the body, as at the start of a line.
const CONTENT_LENGTH_NAME: &[u8] = b"content-length:";

/// The state of a scan through a head.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// The start of the current line.
    line_start: [u8; CONTENT_LENGTH_NAME.len()],
    line_start_length: usize,
    has_lines: bool,
    has_ended: bool,
    has_content_length: bool,
}

impl HeadScan {
    /// Returns `true` if the scanned part of the head has a `Content-Length`.
    pub fn has_content_length(&self) -> bool {
        self.has_content_length
    }

    /// Scans the next bytes. Returns the bytes after the end of the head.
    pub fn scan<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while !self.has_ended {
            let Some(at) = memchr::memchr(b'\n', bytes) else {
                self.keep(bytes);
                return &[];
            };
            let (line, rest) = bytes.split_at(at);
            if self.line_start_length == 0 {
                self.end_line(line);
            } else {
                self.keep(line);
                let start = self.line_start;
                self.end_line(start.get(..self.line_start_length).unwrap_or_default());
                self.line_start_length = 0;
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        bytes
    }

    /// Stores the start of an incomplete line.
    fn keep(&mut self, part: &[u8]) {
        for (to, from) in self.line_start.iter_mut().skip(self.line_start_length).zip(part) {
            *to = *from;
        }
        self.line_start_length = (self.line_start_length + part.len()).min(CONTENT_LENGTH_NAME.len());
    }

    /// Checks a line, or its stored start.
    fn end_line(&mut self, line: &[u8]) {
        match line {
            // Blank lines may precede a request.
            b"" | b"\r" => self.has_ended = self.has_lines,
            [b'c' | b'C', ..] if self.has_lines => {
                self.has_content_length |= line
                    .get(..CONTENT_LENGTH_NAME.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(CONTENT_LENGTH_NAME));
            }
            _ => self.has_lines = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_content_length_in_the_head_only() {
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
                let rest: usize = text.as_bytes().chunks(size).map(|part| scan.scan(part).len()).sum();
                assert_eq!(scan.has_content_length(), found, "{text:?} in parts of {size}");
                let body = text.find("\r\n\r\n").map_or(0, |at| text.len() - at - 4);
                assert_eq!(rest, body, "{text:?} in parts of {size}");
            }
        }
    }
}
