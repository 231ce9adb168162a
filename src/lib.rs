//! Tollkeeper: a self-hosted control plane for AI model platforms.

pub mod catalog;
pub mod clock;
pub mod config;
pub mod db;
pub mod error;
pub mod ids;
pub mod live;
pub mod log;
pub mod money;
pub mod random;
pub mod rules;
pub mod secrets;
