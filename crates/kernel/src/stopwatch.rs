//! Measures how long something takes.

use std::time::Instant;

/// How long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// From now on.
    #[allow(
        clippy::disallowed_methods,
        reason = "how long something took is no business of the injected clock"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
