//! Inputs: one description of a record reads it, refuses what is wrong with it, and documents it.

pub mod fields;
pub mod json;
pub mod types;
