//! Estimated tokens of images, audio, videos and files that no upstream has counted.
//!
//! | content | tokens | basis |
//! |---|---|---|
//! | an image | one per 750 pixels, 85 to 1,600; 765 if its size isn't known | Anthropic's rule; close to OpenAI and Qwen |
//! | audio | 20 per second | 10 at OpenAI, 25 for Qwen, 32 at Gemini |
//! | a video | 250 per second | 263 at Gemini |
//! | a text file | the tokens of its text | |
//! | another file | 1,500 for each page of 60 kB | Anthropic's range is 1,500 to 3,000 per page |

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::TextTokens;

/// A kind of content that isn't text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MediaKind {
    Image,
    Audio,
    Video,
    File,
}

/// The tokens of an image of unknown size: OpenAI's count for 1024 × 1024 pixels.
const UNKNOWN_IMAGE_TOKENS: i64 = 765;
const PIXELS_PER_TOKEN: usize = 750;
const AUDIO_TOKENS_PER_S: i64 = 20;
const VIDEO_TOKENS_PER_S: i64 = 250;
/// The assumed number of bytes of a second of compressed audio, and of a second of video.
const AUDIO_BYTES_PER_S: i64 = 16_000;
const VIDEO_BYTES_PER_S: i64 = 250_000;
/// The assumed length of remote audio and videos.
const UNKNOWN_SECONDS: i64 = 10;
const PAGE_BYTES: i64 = 60_000;
const PAGE_TOKENS: i64 = 1_500;
/// The number of base64 characters that are searched for the size of an image. A small preview may come
/// before the size.
const MAX_HEADER_CHARS: usize = 64 << 10;

/// A base64 engine that accepts input with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl MediaKind {
    /// Returns the approximate number of tokens. `content` is a data URL, base64, or a URL.
    pub(crate) fn tokens(self, content: &str) -> TextTokens {
        let Some(data) = Data::of(content) else { return TextTokens::new(self.unknown_tokens()) };
        match self {
            Self::Image => TextTokens::new(image_tokens(&data.header())),
            Self::Audio => {
                let seconds = data.length() / wave_bytes_per_s(&data.header()).unwrap_or(AUDIO_BYTES_PER_S);
                TextTokens::new((seconds + 1).saturating_mul(AUDIO_TOKENS_PER_S))
            }
            Self::Video => {
                TextTokens::new((data.length() / VIDEO_BYTES_PER_S + 1).saturating_mul(VIDEO_TOKENS_PER_S))
            }
            Self::File => data
                .text()
                .map_or_else(|| TextTokens::new(file_tokens(data.length())), |text| TextTokens::of(&text)),
        }
    }

    /// Returns the tokens of media whose content isn't known.
    const fn unknown_tokens(self) -> i64 {
        match self {
            Self::Image => UNKNOWN_IMAGE_TOKENS,
            Self::Audio => UNKNOWN_SECONDS * AUDIO_TOKENS_PER_S,
            Self::Video => UNKNOWN_SECONDS * VIDEO_TOKENS_PER_S,
            Self::File => PAGE_TOKENS,
        }
    }

    /// Returns the kind that a data URL names; `None` for a string that only begins like a data URL.
    pub(crate) fn of_data_url(url: &str) -> Option<Self> {
        const MAX_TYPE: usize = 200;
        let rest = url.strip_prefix("data:")?;
        let start = rest.as_bytes().get(..rest.len().min(MAX_TYPE)).unwrap_or_default();
        memchr::memmem::find(start, b";base64,")?;
        Some(match rest.split(['/', ';']).next()? {
            "image" => Self::Image,
            "audio" => Self::Audio,
            "video" => Self::Video,
            _ => Self::File,
        })
    }

    /// Returns the kind of a file in base64, by its first bytes.
    pub(crate) fn of_base64(text: &str) -> Option<Self> {
        let start = BASE64.decode(text.get(..16)?).ok()?;
        let kinds: [(&[u8], Self); 5] = [
            (b"\x89PNG", Self::Image),
            (b"\xff\xd8\xff", Self::Image),
            (b"GIF8", Self::Image),
            (b"%PDF", Self::File),
            (b"ID3", Self::Audio),
        ];
        if start.starts_with(b"RIFF") {
            return Some(if start.ends_with(b"WEBP") { Self::Image } else { Self::Audio });
        }
        kinds.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, kind)| kind)
    }

    /// Returns `true` if a string may be a file in base64: it is long, and its beginning has only base64
    /// characters.
    pub(crate) fn is_base64(text: &str) -> bool {
        const MIN_CHARS: usize = 64;
        const LOOKED_AT: usize = 4096;
        let start = text.as_bytes().get(..text.len().min(LOOKED_AT)).unwrap_or_default();
        let is_of_it = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
        start.len() >= MIN_CHARS && start.iter().all(is_of_it)
    }
}

/// Inline content.
struct Data<'a> {
    /// The media type of a data URL; empty for base64 alone.
    media_type: &'a str,
    base64: &'a str,
}

impl<'a> Data<'a> {
    fn of(content: &'a str) -> Option<Self> {
        if let Some(rest) = content.strip_prefix("data:") {
            let (media_type, base64) = rest.split_once(',')?;
            return Some(Self { media_type, base64 });
        }
        let is_address = content.get(..content.len().min(16)).is_some_and(|start| start.contains(':'));
        (!content.is_empty() && !is_address).then_some(Self { media_type: "", base64: content })
    }

    /// Returns the approximate number of bytes.
    fn length(&self) -> i64 {
        i64::try_from(self.base64.len() / 4).unwrap_or(i64::MAX).saturating_mul(3)
    }

    fn header(&self) -> Vec<u8> {
        let end = self.base64.len().min(MAX_HEADER_CHARS) / 4 * 4;
        // Content of fewer than four characters has no header.
        let start = self.base64.get(..end).unwrap_or_default();
        BASE64.decode(start).unwrap_or_default()
    }

    /// Returns the content if it is text.
    fn text(&self) -> Option<Cow<'a, str>> {
        if !self.media_type.contains("base64") && !self.media_type.is_empty() {
            return Some(Cow::Borrowed(self.base64));
        }
        let start = self.header();
        let is_text = !start.is_empty() && !start.contains(&0) && !start.starts_with(b"%PDF");
        if !is_text {
            return None;
        }
        String::from_utf8(BASE64.decode(self.base64).ok()?).ok().map(Cow::Owned)
    }
}

fn image_tokens(header: &[u8]) -> i64 {
    let Ok(size) = imagesize::blob_size(header) else { return UNKNOWN_IMAGE_TOKENS };
    let tokens = size.width.saturating_mul(size.height) / PIXELS_PER_TOKEN;
    i64::try_from(tokens).unwrap_or(i64::MAX).clamp(85, 1_600)
}

/// Returns the bytes per second of WAVE audio, from its header.
fn wave_bytes_per_s(header: &[u8]) -> Option<i64> {
    let is_wave = header.starts_with(b"RIFF") && header.get(8..12) == Some(b"WAVE");
    let rate: [u8; 4] = header.get(28..32)?.try_into().ok()?;
    let rate = i64::from(u32::from_le_bytes(rate));
    (is_wave && rate > 0).then_some(rate)
}

const fn file_tokens(bytes: i64) -> i64 {
    (bytes / PAGE_BYTES + 1).saturating_mul(PAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base64(bytes: &[u8]) -> String {
        BASE64.encode(bytes)
    }

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn wave(seconds: usize) -> Vec<u8> {
        let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        bytes.extend(16_000_u32.to_le_bytes());
        bytes.extend(32_000_u32.to_le_bytes());
        bytes.resize(44 + 32_000 * seconds, 0);
        bytes
    }

    #[test]
    fn images_count_by_their_size_and_not_by_their_bytes() {
        for (width, height, tokens) in [(1, 1, 85), (512, 512, 349), (1024, 768, 1_048), (4096, 4096, 1_600)]
        {
            let mut bytes = png(width, height);
            for length in [100, 900_000] {
                bytes.resize(length, 0);
                let inline = format!("data:image/png;base64,{}", base64(&bytes));
                assert_eq!(MediaKind::Image.tokens(&inline).count(), tokens, "{width} × {height}");
                assert_eq!(MediaKind::Image.tokens(&base64(&bytes)).count(), tokens);
            }
        }
        for unknown in ["https://example.com/cat.png", "data:image/png;base64,AAAA", "file-123:4", "?"] {
            assert_eq!(MediaKind::Image.tokens(unknown).count(), 765, "{unknown}");
        }
    }

    #[test]
    fn audio_counts_by_its_length() {
        assert_eq!(MediaKind::Audio.tokens(&base64(&wave(30))).count(), 620);
        // The assumed rate is 128 kbit/s.
        assert_eq!(MediaKind::Audio.tokens(&base64(&vec![7; 480_000])).count(), 620);
        assert_eq!(MediaKind::Video.tokens(&base64(&vec![7; 2_500_000])).count(), 2_750);
    }

    #[test]
    fn files_count_by_their_text_or_their_pages() {
        let text = "A text of eight words that anyone reads. ".repeat(100);
        let expected = TextTokens::of(&text).count();
        let inline = format!("data:text/plain;base64,{}", base64(text.as_bytes()));
        assert_eq!(MediaKind::File.tokens(&inline).count(), expected);
        assert_eq!(MediaKind::File.tokens(&base64(text.as_bytes())).count(), expected);
        let pdf = [b"%PDF-1.7".as_slice(), &vec![1; 200_000]].concat();
        assert_eq!(MediaKind::File.tokens(&base64(&pdf)).count(), 4 * 1_500);
    }

    #[test]
    fn data_urls_name_their_kind() {
        for (url, kind) in [
            ("data:image/png;base64,AAAA", Some(MediaKind::Image)),
            ("data:audio/wav;base64,AAAA", Some(MediaKind::Audio)),
            ("data:video/mp4;base64,AAAA", Some(MediaKind::Video)),
            ("data:;base64,AAAA", Some(MediaKind::File)),
            ("data:,hello", None),
            ("a text about data:", None),
        ] {
            assert_eq!(MediaKind::of_data_url(url), kind, "{url}");
        }
    }

    #[test]
    fn files_tell_their_kind() {
        for (bytes, kind) in [
            (png(1, 1).as_slice(), Some(MediaKind::Image)),
            (b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01", Some(MediaKind::Image)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some(MediaKind::Image)),
            (b"RIFF\0\0\0\0WAVEfmt ", Some(MediaKind::Audio)),
            (b"%PDF-1.7\n%\xff\xff\xff", Some(MediaKind::File)),
            (b"Just a text", None),
        ] {
            assert_eq!(MediaKind::of_base64(&base64(bytes)), kind, "{bytes:?}");
        }
    }
}
