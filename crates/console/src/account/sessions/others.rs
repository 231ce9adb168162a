//! `/console/account/sessions/others`: all sessions of the user except the current session.

pub mod delete;
