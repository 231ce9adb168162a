//! Chance: the operating system's generator, handed down as a value beside the clock.

use ring::rand::{SecureRandom, SystemRandom};

/// The only source of random bytes.
#[derive(Clone, Debug)]
pub struct Random(SystemRandom);

impl Random {
    /// The operating system's generator.
    #[allow(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    pub fn system() -> Self {
        Self(SystemRandom::new())
    }

    /// `N` random bytes.
    ///
    /// # Panics
    /// When the operating system has no randomness to give: nothing this service does is safe then.
    #[allow(clippy::panic, reason = "without randomness no key, token or nonce is safe")]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        match self.0.fill(&mut bytes) {
            Ok(()) => bytes,
            Err(_) => panic!("the operating system gives no random bytes"),
        }
    }

    /// The generator in the form that ring's own functions take.
    pub fn as_ring(&self) -> &SystemRandom {
        &self.0
    }
}
