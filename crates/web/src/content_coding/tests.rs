use std::io::Write;

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;

use super::*;

const ALL: [ContentCoding; 3] = [ContentCoding::Gzip, ContentCoding::Zstd, ContentCoding::Brotli];
const TEXT: &[u8] =
    b"{\"model\": \"chat-1\", \"messages\": [{\"role\": \"user\", \"content\": \"hi hi hi hi hi\"}]}";

/// Encodes a body as client programs do.
pub(crate) fn encode(coding: ContentCoding, body: &[u8]) -> Vec<u8> {
    match coding {
        ContentCoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        ContentCoding::Zstd => zstd::encode_all(body, 3).unwrap(),
        ContentCoding::Brotli => brotli(body, &BrotliEncoderParams { quality: 5, ..Default::default() }),
    }
}

fn brotli(mut body: &[u8], params: &BrotliEncoderParams) -> Vec<u8> {
    let mut encoded = Vec::new();
    brotli::BrotliCompress(&mut body, &mut encoded, params).unwrap();
    encoded
}

/// Encodes zstd with a window of this size, as a power of two.
fn zstd_with_window(body: &[u8], log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn decode(coding: ContentCoding, body: &[u8]) -> Result<Vec<u8>, DecodeError<()>> {
    let mut decoded = Vec::new();
    let take = |piece: &[u8]| {
        decoded.extend_from_slice(piece);
        Ok(())
    };
    coding.decode(body, take).map(|()| decoded)
}

#[test]
fn bodies_are_decoded() {
    let noise: Vec<u8> = (0_u32..200_000).map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
    let exact = vec![b'x'; 2 * PIECE_BYTES];
    for coding in ALL {
        for body in [b"".as_slice(), b"{}", TEXT, &noise, &exact, &vec![0; 1_000_000]] {
            let encoded = encode(coding, body);
            assert!(decode(coding, &encoded).unwrap() == body, "{coding:?} {}", body.len());
        }
    }
}

#[test]
fn broken_bodies_are_refused() {
    for coding in ALL {
        let encoded = encode(coding, TEXT);
        for length in 0..encoded.len() {
            assert_eq!(decode(coding, &encoded[..length]), Err(DecodeError::Invalid), "{coding:?} {length}");
        }
        for rest in [b" ".as_slice(), b"\0", b"\x1f\x8b", TEXT, &encoded] {
            let longer = [&encoded, rest].concat();
            assert_eq!(decode(coding, &longer), Err(DecodeError::Invalid), "{coding:?} {rest:?}");
        }
        assert_eq!(decode(coding, TEXT), Err(DecodeError::Invalid), "{coding:?}: not encoded");
        // Changing any byte must not cause a panic. gzip has a checksum, so it never decodes to a different
        // text.
        for place in 0..encoded.len() {
            for bit in 0..8 {
                let mut changed = encoded.clone();
                changed[place] ^= 1 << bit;
                let decoded = decode(coding, &changed);
                let is_other = decoded.is_ok_and(|decoded| decoded != TEXT);
                assert!(coding != ContentCoding::Gzip || !is_other, "{place} {bit}");
            }
        }
    }
}

#[test]
fn decoding_ends_where_nothing_is_taken() {
    for coding in ALL {
        let encoded = encode(coding, &vec![0; 5_000_000]);
        assert!(encoded.len() < 100_000, "{coding:?} {}", encoded.len());
        let mut taken = 0;
        let take = |piece: &[u8]| {
            assert!(piece.len() <= PIECE_BYTES);
            taken += piece.len();
            if taken > 100_000 { Err("enough") } else { Ok(()) }
        };
        assert_eq!(coding.decode(&encoded, take), Err(DecodeError::Refused("enough")));
        assert!(taken <= 100_000 + PIECE_BYTES, "{coding:?}: {taken}");
    }
}

#[test]
fn large_windows_are_refused() {
    let zstd = |log| decode(ContentCoding::Zstd, &zstd_with_window(TEXT, log));
    assert_eq!(zstd(MAX_ZSTD_WINDOW_LOG).unwrap(), TEXT);
    assert_eq!(zstd(MAX_ZSTD_WINDOW_LOG + 1), Err(DecodeError::Invalid));
    let window = |lgwin, large_window| BrotliEncoderParams { lgwin, large_window, ..Default::default() };
    let largest = brotli(TEXT, &window(24, false));
    assert_eq!(decode(ContentCoding::Brotli, &largest).unwrap(), TEXT);
    let larger = brotli(TEXT, &window(28, true));
    assert_eq!(larger[0], 0x11, "the mark of a large window");
    assert_eq!(decode(ContentCoding::Brotli, &larger), Err(DecodeError::Invalid));
}

fn headers(lines: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(header::CONTENT_ENCODING, HeaderValue::from_bytes(line).unwrap());
    }
    headers
}

#[test]
fn headers_name_one_coding() {
    let of = |lines: &[&str]| {
        ContentCoding::of(&headers(&lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>())).unwrap()
    };
    for lines in [&[] as &[&str], &[""], &["identity"], &["Identity"], &[" , "]] {
        assert_eq!(of(lines), None, "{lines:?}");
        check_as_sent(&headers(&lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>())).unwrap();
    }
    for (name, coding) in [
        ("gzip", ContentCoding::Gzip),
        ("X-GZIP", ContentCoding::Gzip),
        ("Zstd", ContentCoding::Zstd),
        (" br ,", ContentCoding::Brotli),
    ] {
        assert_eq!(of(&[name]), Some(coding), "{name}");
        let refused = check_as_sent(&headers(&[name.as_bytes()])).unwrap_err();
        assert_eq!((refused.code, refused.accept_encoding), (Code::UnsupportedEncoding, Some("identity")));
    }
}

#[test]
fn other_codings_are_named_and_refused() {
    let long = "x".repeat(MAX_LIST_LENGTH + 1);
    let cases: [(&[&[u8]], &str); 8] = [
        (&[b"Deflate"], "accept the content coding `deflate`. Send the body uncompressed, or with"),
        (&[b"gzip, zstd"], "accept several content codings (`gzip, zstd`). Send"),
        (&[b"gzip", b"zstd"], "accept several content codings (`gzip, zstd`). Send"),
        (&[b"gzip,gzip"], "accept several content codings (`gzip, gzip`). Send"),
        (&[b"identity,gzip"], "accept several content codings (`identity, gzip`). Send"),
        (&[b"\xe9"], "accept the content coding `?`. Send"),
        (&[b"a\tb"], "accept this content coding. Send"),
        (&[long.as_bytes()], "accept this content coding. Send"),
    ];
    for (lines, message) in cases {
        let error = ContentCoding::of(&headers(lines)).unwrap_err();
        assert_eq!((error.code, error.accept_encoding), (Code::UnsupportedEncoding, Some(ACCEPTED)));
        assert_eq!(error.param.as_deref(), Some("content-encoding"));
        let found = error.public_message();
        assert!(found.contains(message) && found.ends_with("`gzip`, `zstd` and `br`."), "{found}");
    }
}
