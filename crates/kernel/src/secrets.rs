//! Secrets: strings that don't print, tokens, encryption, and the files that contain keys.
//!
//! A type that contains a secret prints as `***` in logs and errors. Only `expose` returns its text, so that
//! a search for that word finds all code that uses the text of a secret.

use std::fmt;

use ring::digest;
use subtle::ConstantTimeEq;

pub mod base62;
pub mod files;
pub mod sealing;
pub mod token;

/// The text that is shown in place of a secret.
pub const HIDDEN: &str = "***";

/// The number of random bytes in every generated secret: 256 bits.
pub const SECRET_BYTES: usize = 32;

/// A string that must not be printed. Comparisons take constant time.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, which must not appear in logs, errors or pages.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the secret equals `text`, in constant time.
    pub fn matches(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    /// Compares in constant time for strings of the same length. The length isn't secret.
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

/// Returns the SHA-256 of the bytes (FIPS 180-4). It is suitable for storing secrets of 256 random bits;
/// passwords need a slow hash.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_compares_but_never_prints() {
        let secret = Secret::new("open sesame");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret, Secret::new("open sesame"));
        assert_ne!(secret, Secret::new("open sesamf"));
        assert_ne!(secret, Secret::new("open"));
        assert_eq!(secret.expose(), "open sesame");
    }
}
