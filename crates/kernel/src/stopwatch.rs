//! Measurement of durations, independent of the injected clock.

use std::time::Instant;

/// A stopwatch, which measures the time since its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(
        clippy::disallowed_methods,
        reason = "tests that move the clock must not change measured durations"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds since the start.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
