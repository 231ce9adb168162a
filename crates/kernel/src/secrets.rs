//! Secrets: texts that don't print, tokens, encryption, and the files that hold keys.
//!
//! A type that holds a secret prints as `***` in logs and errors. Its text comes from `expose` only, so that
//! a search for that word finds every place where a secret leaves its wrapper.

use std::fmt;

use ring::digest;
use subtle::ConstantTimeEq;

pub mod base62;
pub mod files;
pub mod sealing;
pub mod token;

/// Shown in place of a secret.
pub const HIDDEN: &str = "***";

/// Random bytes in every generated secret: 256 bits.
pub const SECRET_BYTES: usize = 32;

/// A text that must not be printed. Comparisons take constant time.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, which must not get into logs, errors or pages.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the secret is `text`, in constant time.
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
    /// Takes constant time for texts of the same length; the length itself isn't secret.
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

/// SHA-256 (FIPS 180-4). Suitable for storing secrets of 256 random bits; passwords need a slow hash.
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
