//! Signing in: with a password ([`log_in`]), a [`passkey`] or a [`provider`], and proving again who one is
//! ([`reauthentication`]).

pub(crate) mod guesses;
pub(crate) mod login;
pub mod passkey;
pub(crate) mod pending_login;
pub(crate) mod proofs;
pub mod provider;
pub mod reauthentication;
pub(crate) mod refusals;

pub use login::{BrowserLogin, BrowserStep, LoggedIn, Login, finish_in_browser, log_in, log_in_browser};
pub use pending_login::{PENDING_LOGIN_MS, PendingLogin};
