//! What this replica holds in memory so that a model call never waits for a query. None of it is the truth.

pub mod limiter;
