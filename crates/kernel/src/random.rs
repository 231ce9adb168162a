//! Randomness: the operating system's generator, injected like the clock.

use ring::rand::{SecureRandom, SystemRandom};

/// The source of all random bytes.
#[derive(Clone, Debug)]
pub struct Random(SystemRandom);

impl Random {
    /// Returns the operating system's generator.
    #[allow(
        clippy::disallowed_methods,
        reason = "the only place that reads the operating system's random numbers"
    )]
    pub fn system() -> Self {
        Self(SystemRandom::new())
    }

    /// Returns `N` random bytes.
    ///
    /// # Panics
    /// Panics if the operating system returns no random bytes, because nothing in this service would be
    /// secure then.
    #[allow(clippy::panic, reason = "without randomness no key, token or nonce is safe")]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match self.0.fill(&mut bytes) {
            Ok(()) => bytes,
            Err(_) => panic!("the operating system returns no random bytes"),
        }
    }
}
