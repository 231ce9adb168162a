//! Secrets: a text that doesn't print, tokens, sealed copies, and the files that hold keys.
//!
//! A type that holds a secret prints as `***` in logs and errors; `expose` is the one way to its text, so that
//! a search for that word finds every place where a secret leaves its wrapper.

use std::fmt;

use ring::digest;
use subtle::ConstantTimeEq;

pub mod base62;
pub mod files;
pub mod sealing;
pub mod token;

/// The text that is shown in the place of a secret.
pub const HIDDEN: &str = "***";

/// Bytes of randomness in every secret that we make: 256 bits.
pub const SECRET_BYTES: usize = 32;

/// A text that must not be printed. Two of them compare in a time that does not depend on where they differ.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: never for a log, an error or a page.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether this text is the secret; constant in time like a comparison of two secrets.
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
    /// Constant in time for texts of the same length; the length itself is no secret.
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

/// SHA-256 (FIPS 180-4). Enough to store a secret of 256 random bits; passwords need a slow hash.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_compares_but_never_prints() {
        let secret = Secret::new("open sesame");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret, Secret::new("open sesame"));
        assert_ne!(secret, Secret::new("open sesamf"));
        assert_ne!(secret, Secret::new("open"));
        assert_eq!(secret.expose(), "open sesame");
    }
}
