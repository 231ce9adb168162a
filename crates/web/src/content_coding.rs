//! Content codings of request bodies (RFC 9110, section 8.4).

use std::io::{self, ErrorKind, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::bufread::GzDecoder;
use http::{HeaderMap, header};
use kernel::error::{Code, Error};

/// The codings that JSON bodies may have, for the header `Accept-Encoding` of a 415.
const ACCEPTED: &str = "gzip, zstd, br";
/// The coding of a body that must be sent unencoded, for the same header.
const ACCEPTED_AS_SENT: &str = "identity";
/// The maximum length of a list of codings that an error repeats.
const MAX_LIST_LENGTH: usize = 60;
/// The largest window of a zstd frame, as a power of two: 8 MiB, the limit for every HTTP encoder (RFC 9659).
/// The windows of gzip and brotli have at most 32 KiB and 16 MiB.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
/// The number of bytes decoded at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// The coding of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentCoding {
    Gzip,
    Zstd,
    Brotli,
}

/// The reason why a body couldn't be decoded; `E` is the error of the consumer of the decoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError<E> {
    /// The body is corrupt, ends too early, or has bytes after its end.
    Invalid,
    /// The consumer refused the decoded bytes.
    Refused(E),
}

impl ContentCoding {
    /// Returns the coding in the headers of a JSON body; `None` if the body is unencoded.
    ///
    /// # Errors
    /// 415 `unsupported_encoding` for an unknown coding, and for several codings.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let names = names(headers);
        let coding = match names.as_slice() {
            [] => return Ok(None),
            [name] => name.as_str(),
            _ => "",
        };
        match coding {
            "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "zstd" => Ok(Some(Self::Zstd)),
            "br" => Ok(Some(Self::Brotli)),
            _ => Err(unsupported(
                &names,
                ACCEPTED,
                "or with one of the content codings `gzip`, `zstd` and `br`",
            )),
        }
    }

    /// Returns the message for an invalid body.
    pub const fn invalid_message(self) -> &'static str {
        match self {
            Self::Gzip => {
                "The body is not a single valid gzip member: it is corrupt, truncated, or has trailing \
                 data."
            }
            Self::Zstd => {
                "The body is not a single valid zstd frame with a window of at most 8 MiB: it is corrupt, \
                 truncated, or has trailing data."
            }
            Self::Brotli => "The body is not valid brotli: it is corrupt, truncated, or has trailing data.",
        }
    }

    /// Decodes a body piece by piece. The body is one gzip member, one zstd frame, or one brotli stream.
    ///
    /// # Errors
    /// An error if the body is invalid, or if `take` refuses a piece, which ends the decoding.
    pub fn decode<E>(
        self,
        body: &[u8],
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), DecodeError<E>> {
        let rest = match self {
            Self::Gzip => {
                let mut decoder = GzDecoder::new(body);
                read_to_end(&mut decoder, take)?;
                decoder.into_inner()
            }
            Self::Zstd => {
                let decoder = zstd::Decoder::with_buffer(body).map_err(|_| DecodeError::Invalid)?;
                let mut decoder = decoder.single_frame();
                decoder.window_log_max(MAX_ZSTD_WINDOW_LOG).map_err(|_| DecodeError::Invalid)?;
                read_to_end(&mut decoder, take)?;
                decoder.finish()
            }
            Self::Brotli => {
                let mut decoder = BrotliDecoder::new(body);
                read_to_end(&mut decoder, take)?;
                decoder.rest
            }
        };
        if rest.is_empty() { Ok(()) } else { Err(DecodeError::Invalid) }
    }
}

/// Checks that a body is sent unencoded: a form, or a signed body.
///
/// # Errors
/// 415 `unsupported_encoding` for any coding.
pub fn check_as_sent(headers: &HeaderMap) -> Result<(), Error> {
    let names = names(headers);
    match names.as_slice() {
        [] => Ok(()),
        [name] if name == "identity" => Ok(()),
        _ => Err(unsupported(&names, ACCEPTED_AS_SENT, "without a content coding")),
    }
}

/// Returns the names of all codings in lower case, in the order in which they were applied.
fn names(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::CONTENT_ENCODING).iter();
    // A value that isn't ASCII can't be the name of a coding.
    let names = lines.flat_map(|line| line.to_str().unwrap_or("?").split(','));
    // Lists may have empty elements (RFC 9110, section 5.6.1).
    names.map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect()
}

fn unsupported(names: &[String], accepted: &'static str, instead: &str) -> Error {
    let list = names.join(", ");
    let is_long = list.len() > MAX_LIST_LENGTH
        || list.contains(|letter: char| !letter.is_ascii_graphic() && letter != ' ');
    let what = match names {
        [_] if is_long => "this content coding".to_owned(),
        [_] => format!("the content coding `{list}`"),
        _ if is_long => "several content codings".to_owned(),
        _ => format!("several content codings (`{list}`)"),
    };
    Error {
        accept_encoding: Some(accepted),
        ..Error::new(Code::UnsupportedEncoding)
            .param("content-encoding")
            .message(format!("This path doesn't accept {what}. Send the body uncompressed, {instead}."))
    }
}

fn read_to_end<E>(
    decoder: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), DecodeError<E>> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        let length = decoder.read(&mut piece).map_err(|_| DecodeError::Invalid)?;
        let decoded = piece.get(..length).unwrap_or_default();
        if decoded.is_empty() {
            return Ok(());
        }
        take(decoded).map_err(DecodeError::Refused)?;
    }
}

/// Decodes brotli. The library's own reader accepts windows of a gigabyte, and reads beyond the end of the
/// stream.
struct BrotliDecoder<'a> {
    /// The input that isn't decoded yet.
    rest: &'a [u8],
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
}

impl<'a> BrotliDecoder<'a> {
    fn new(body: &'a [u8]) -> Self {
        let alloc = StandardAlloc::default;
        Self { rest: body, state: BrotliState::new_strict(alloc(), alloc(), alloc()) }
    }
}

impl Read for BrotliDecoder<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (mut available, mut used) = (self.rest.len(), 0);
        let (mut room, mut written, mut total) = (into.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut available,
            &mut used,
            self.rest,
            &mut room,
            &mut written,
            into,
            &mut total,
            &mut self.state,
        );
        self.rest = self.rest.get(used..).unwrap_or_default();
        match result {
            BrotliResult::ResultSuccess | BrotliResult::NeedsMoreOutput => Ok(written),
            BrotliResult::NeedsMoreInput if written > 0 => Ok(written),
            BrotliResult::NeedsMoreInput => Err(ErrorKind::UnexpectedEof.into()),
            BrotliResult::ResultFailure => Err(ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
