//! Mail tokens: the secrets in verification, reset and invitation links
//! (docs/contract/accounts.md#mail-tokens).
//!
//! A token is 32 random bytes as base64url. Only its hash is stored, so that a stolen database doesn't reveal
//! any link.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::random::Random;
use crate::secrets::{SECRET_BYTES, sha256};

/// The number of characters of a token: 32 bytes in base64url without padding.
pub const TOKEN_CHARS: usize = 43;

/// A mail token.
#[derive(Clone)]
pub struct MailToken(String);

impl MailToken {
    /// Returns a new token with 256 random bits.
    pub fn generate(random: &Random) -> Self {
        let secret: [u8; SECRET_BYTES] = random.bytes();
        Self(URL_SAFE_NO_PAD.encode(secret))
    }

    /// Parses a token in the form of [`MailToken::generate`]. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != TOKEN_CHARS {
            return None;
        }
        URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(text.to_owned()))
    }

    /// Returns the SHA-256 of the text, as stored in the database.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    /// Returns the text, which may be used only in the e-mail.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MailToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_never_print() {
        let random = Random::system();
        let token = MailToken::generate(&random);
        assert_eq!(token.expose().len(), TOKEN_CHARS);
        assert_eq!(MailToken::parse(token.expose()).map(|t| t.hash()), Some(token.hash()));
        assert_ne!(token.hash(), MailToken::generate(&random).hash());
        assert_eq!(format!("{token:?}"), "***");
    }

    #[test]
    fn only_canonical_tokens_are_read() {
        let zeros = "A".repeat(43);
        assert!(MailToken::parse(&zeros).is_some());
        for bad in [
            String::new(),
            "A".repeat(42),
            "A".repeat(44),
            "A".repeat(1 << 20),
            // The last character has only four significant bits. Its two low bits must be zero.
            format!("{}B", "A".repeat(42)),
            format!("{}=", "A".repeat(42)),
            format!("{}+", "A".repeat(42)),
            format!(" {}", "A".repeat(42)),
            format!("{}é", "A".repeat(41)),
        ] {
            assert!(MailToken::parse(&bad).is_none(), "{bad:.60}");
        }
    }
}
