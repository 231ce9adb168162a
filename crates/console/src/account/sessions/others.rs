//! `/console/account/sessions/others`: all sessions of the person but the one that asks.

pub mod delete;
