//! The text of an API key: the prefix, 43 base62 characters of secret, and 6 base62 characters of checksum
//! (docs/contract/api-keys.md#format).
//!
//! With the checksum, scanners and the server can recognize typos without a query.

use std::fmt;

use kernel::random::Random;
use kernel::secrets::{SECRET_BYTES, base62, sha256};

/// The number of base62 characters for 32 bits.
const CHECKSUM_CHARS: usize = 6;
/// The number of characters of the secret that [`ApiKeySecret::redacted`] shows at each end.
const SHOWN_CHARS: usize = 4;

/// The full text of an API key.
#[derive(Clone)]
pub struct ApiKeySecret {
    text: String,
    prefix_len: usize,
}

impl ApiKeySecret {
    /// Returns a new key with 256 random bits.
    pub fn generate(prefix: &str, random: &Random) -> Self {
        Self::from_secret(prefix, random.bytes())
    }

    /// Parses a key with this prefix, in the exact format of [`ApiKeySecret::generate`]. Returns `None` for a
    /// typo or any other text, without an allocation.
    ///
    /// The 43 characters could encode a number of 2^256 or more, which no generated key has. Then the lookup
    /// doesn't find a key.
    pub fn parse(prefix: &str, text: &str) -> Option<Self> {
        if text.len() != prefix.len() + base62::SECRET_CHARS + CHECKSUM_CHARS {
            return None;
        }
        let random_part = text.strip_prefix(prefix)?;
        if !random_part.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        let (body, checksum) = text.split_at_checked(prefix.len() + base62::SECRET_CHARS)?;
        if checksum.as_bytes() != checksum_of(body).as_slice() {
            return None;
        }
        Some(Self { text: text.to_owned(), prefix_len: prefix.len() })
    }

    /// Returns the SHA-256 of the whole text, by which the database stores a key.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.text.as_bytes())
    }

    /// Returns the whole text, which is shown to its owner once, and sealed.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Returns enough of the text to recognize the key, but far too little to use it, such as `tk_AbCd…6789`.
    pub fn redacted(&self) -> String {
        let head = self.text.get(..self.prefix_len + SHOWN_CHARS).unwrap_or_default();
        let tail = self.text.get(self.text.len().saturating_sub(SHOWN_CHARS)..).unwrap_or_default();
        format!("{head}…{tail}")
    }

    /// Returns the text that is shown if only the hash of a key is known: `tk_…`.
    pub fn masked(prefix: &str) -> String {
        format!("{prefix}…")
    }

    fn from_secret(prefix: &str, secret: [u8; SECRET_BYTES]) -> Self {
        let mut text = format!("{prefix}{}", base62::encode(secret));
        let checksum = checksum_of(&text);
        text.extend(checksum.map(char::from));
        Self { text, prefix_len: prefix.len() }
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Returns the CRC32 (IEEE) of `body`, big-endian in six base62 characters.
fn checksum_of(body: &str) -> [u8; CHECKSUM_CHARS] {
    let mut rest = crc32fast::hash(body.as_bytes());
    let mut characters = [b'0'; CHECKSUM_CHARS];
    for slot in characters.iter_mut().rev() {
        *slot = base62::digit(rest % 62);
        rest /= 62;
    }
    characters
}

#[cfg(test)]
#[allow(clippy::string_slice, reason = "test keys are ASCII")]
mod tests {
    use super::*;

    fn parses(text: &str) -> bool {
        ApiKeySecret::parse("tk_", text).is_some()
    }

    #[test]
    fn known_keys_parse() {
        // The values were computed with Python's `int.from_bytes`, `zlib.crc32` and `divmod` by 62.
        let counting: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let cases = [
            ([0; 32], "tk_00000000000000000000000000000000000000000001LBmmQ"),
            ([0xff; 32], "tk_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp149VPTW"),
            (counting, "tk_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1ptDso"),
        ];
        for (secret, expected) in cases {
            assert_eq!(ApiKeySecret::from_secret("tk_", secret).expose(), expected);
            assert!(parses(expected));
        }
    }

    #[test]
    fn crc32_is_the_ieee_one() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_key_never_prints_and_is_recognised_by_its_ends() {
        let key = ApiKeySecret::from_secret("tk_", [0xff; 32]);
        assert_eq!(format!("{key:?}"), "***");
        let redacted = key.redacted();
        assert_eq!(redacted.chars().count(), 3 + 4 + 1 + 4);
        assert!(redacted.starts_with("tk_") && redacted.contains('…'));
        assert_eq!(key.hash(), sha256(key.expose().as_bytes()));
    }

    #[test]
    fn other_texts_are_no_keys() {
        let good = ApiKeySecret::generate("tk_", &Random::system());
        let good = good.expose();
        for bad in ["", "tk_", "tk", &good[..51], &good[3..], &good.to_uppercase(), "tk_é"] {
            assert!(!parses(bad), "{bad}");
        }
        for bad in [format!("{good}0"), format!(" {good}"), format!("{good}\n"), format!("sk_{}", &good[3..])]
        {
            assert!(!parses(&bad), "{bad:?}");
        }
        // A multi-byte character at any position leaves the length in bytes unchanged.
        for at in 0..good.len() - 1 {
            let bad = format!("{}é{}", &good[..at], &good[at + 2..]);
            assert!(!parses(&bad), "{bad}");
        }
        assert!(ApiKeySecret::parse("", good).is_none());
        assert!(ApiKeySecret::parse("live_tk_", good).is_none());
    }

    #[test]
    fn single_changes_and_swaps_of_neighbours_are_detected() {
        let good = ApiKeySecret::generate("tk_", &Random::system());
        let good = good.expose().as_bytes();
        for at in 0..good.len() {
            for &other in base62::ALPHABET.iter().filter(|&&c| c != good[at]) {
                let mut bad = good.to_vec();
                bad[at] = other;
                assert!(!parses(std::str::from_utf8(&bad).unwrap()), "{at} to {other}");
            }
            let mut bad = good.to_vec();
            bad.swap(at, (at + 1) % good.len());
            if bad != good {
                assert!(!parses(std::str::from_utf8(&bad).unwrap()), "swap at {at}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn every_secret_parses(secret: [u8; 32], prefix in "[a-z]{0,8}_?") {
            let key = ApiKeySecret::from_secret(&prefix, secret);
            let read = ApiKeySecret::parse(&prefix, key.expose());
            proptest::prop_assert_eq!(read.map(|k| k.text), Some(key.text));
        }

        #[test]
        fn noise_never_panics(noise: String) {
            proptest::prop_assert!(!parses(&noise));
        }
    }
}
