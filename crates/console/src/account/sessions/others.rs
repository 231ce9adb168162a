//! `/console/account/sessions/others`: all sessions of the person except the current one.

pub mod delete;
