//! The random values of a sign-on.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use kernel::random::Random;

/// The random values of a sign-on. The browser keeps them in sealed form.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secrets {
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
}

impl Secrets {
    pub(crate) fn generate(random: &Random) -> Self {
        let value = || URL_SAFE_NO_PAD.encode(random.bytes::<32>());
        Self { state: value(), nonce: value(), verifier: value() }
    }

    /// Returns the value that identifies the sign-on. It is valid only once.
    pub fn state(&self) -> &str {
        &self.state
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
