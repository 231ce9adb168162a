//! The part of other subjects in the transactions of accounts.
//!
//! Invitations, API keys and wallets know accounts, and not the other way round. Where one of them has to go
//! along with a change of an account, in its transaction, the application hands in what is to be done.

use std::pin::Pin;

use crate::store::users::{EmailVerified, User};
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use trail::Trail;

/// The future of a hook.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A step for an account, on behalf of the person who acts.
pub type ForUser<T> = Box<dyn for<'a> Fn(&'a mut Tx, &'a Trail, &'a User, Time) -> Step<'a, T> + Send + Sync>;

/// A step for an account whose address is verified.
pub type ForVerified = Box<dyn for<'a> Fn(&'a mut Tx, &'a EmailVerified, Time) -> Step<'a, ()> + Send + Sync>;

/// The steps of other subjects.
pub struct Hooks {
    /// Accepts the open invitations for an address. Called when the account's password was given and the
    /// address is verified: at each login, and at a verification with the password.
    pub accept_invitations: ForUser<()>,
    /// Ends the API keys and the invitations that were made with an account, and returns the organizations
    /// that it belongs to, a line each. Called when the first proof of the address is a new password: another
    /// person may have used the account before.
    pub reclaim: ForUser<Vec<String>>,
    /// Gives credit to the person's first organization. Called after [`Hooks::accept_invitations`] and
    /// [`Hooks::reclaim`], and before mails are counted: it locks a wallet.
    pub give_first_credit: ForVerified,
}
