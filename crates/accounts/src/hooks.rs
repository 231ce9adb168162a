//! Hooks: the work of other subjects in the transactions of accounts.
//!
//! Tenants, API keys and billing depend on accounts, and not the other way round. Where one of them has to
//! change something together with an account, in its transaction, the application sets a hook.

use std::pin::Pin;

use crate::store::users::{EmailVerified, User};
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use sign_on::settings::Membership;
use trail::Trail;

/// The future that a hook returns.
pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A hook for an account. The trail names the actor.
pub type UserHook<T> =
    Box<dyn for<'a> Fn(&'a mut Tx, &'a Trail, &'a User, Time) -> HookFuture<'a, T> + Send + Sync>;

/// A hook for an account whose address has been verified.
pub type VerifiedEmailHook =
    Box<dyn for<'a> Fn(&'a mut Tx, &'a EmailVerified, Time) -> HookFuture<'a, ()> + Send + Sync>;

/// A hook that answers a question about a folded address.
pub type AddressHook = Box<dyn for<'a> Fn(&'a mut Tx, &'a str, Time) -> HookFuture<'a, bool> + Send + Sync>;

/// A hook for an account whose user has signed in with a provider.
pub type SignOnHook = Box<
    dyn for<'a> Fn(&'a mut Tx, &'a Trail, &'a User, &'a SignOnGrant<'a>, Time) -> HookFuture<'a, ()>
        + Send
        + Sync,
>;

/// The effect of a provider's sign-ons on memberships.
#[derive(Clone, Copy, Debug)]
pub struct SignOnGrant<'a> {
    pub provider_id: &'a str,
    pub membership: &'a Membership,
    /// The person's groups; `None` if the provider doesn't report any.
    pub groups: Option<&'a [String]>,
}

/// The hooks of other subjects.
pub struct Hooks {
    /// Returns `true` if the address has an open invitation.
    pub is_invited: AddressHook,
    /// Accepts the open invitations for an address. Called when the caller gave the account's password and
    /// the address is verified: at each login, and at a verification with the password.
    pub accept_invitations: UserHook<()>,
    /// Ends the API keys and the invitations that were created with an account, and returns the organizations
    /// that it belongs to, one line each. Called when the first proof of the address is a new password:
    /// another person may have used the account before.
    pub reclaim: UserHook<Vec<String>>,
    /// Gives credit to the person's first organization. Called after [`Hooks::accept_invitations`] and
    /// [`Hooks::reclaim`], and before e-mails are counted: it locks a wallet.
    pub give_first_credit: VerifiedEmailHook,
    /// Creates, changes or ends the membership that a provider gives. Called when a person has signed on with it.
    pub apply_sign_on: SignOnHook,
}
