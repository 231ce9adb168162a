//! Signing in: with a password ([`log_in`]), a [`passkey`] or a [`provider`], and proving again who one is
//! ([`reauthentication`]).
//!
//! 1. An `Attempt` (`attempts`) is counted before anything is checked; if it is refused, it leaves an audit entry
//!    (`refusals`).
//! 2. A right password (`password`), a passkey or a sign-on makes a `FirstStep`.
//! 3. `open` (`session`) checks the second factor and opens the session. If a code is due, the browser keeps a
//!    [`PendingLogin`] meanwhile, and the code comes in a step of its own (`second_step`).

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
