//! Decisions: pure functions without input or output, each with its table of cases beside it.

pub mod periods;
pub mod rating;
pub mod restrictions;
