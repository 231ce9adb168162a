//! Signing in with a password ([`log_in`]), a [`passkey`] or a [`provider`], and confirming a user's identity
//! again ([`reauthentication`]).
//!
//! 1. An `Attempt` (`attempts`) is counted before anything is checked. A refused attempt adds an audit entry
//!    (`refusals`).
//! 2. A correct password (`password`), a passkey or a sign-on completes the `FirstStep`.
//! 3. `open` (`session`) checks the second factor and opens the session. If a code is required, the browser
//!    keeps a [`PendingLogin`], and sends the code in a separate request (`second_step`).

pub(crate) mod attempts;
pub mod passkey;
pub(crate) mod password;
mod pending_login;
pub mod provider;
pub mod reauthentication;
mod refusals;
mod second_step;
mod session;

pub use password::{Login, log_in, log_in_browser};
pub use pending_login::{PENDING_LOGIN_MS, PendingLogin};
pub use second_step::finish_in_browser;
pub use session::{BrowserLogin, BrowserStep, LoggedIn};
