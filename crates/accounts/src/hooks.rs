//! Hooks: the work of other subjects in the transactions of accounts.
//!
//! Tenants, API keys and billing depend on accounts, and not the other way around. If one of them must change
//! something in the same transaction as an account, the application sets a hook.

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

/// A hook that checks a folded address.
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
    /// The user's groups; `None` if the provider doesn't report any.
    pub groups: Option<&'a [String]>,
}

/// The hooks of other subjects.
pub struct Hooks {
    /// Returns `true` if the address has an open invitation.
    pub is_invited: AddressHook,
    /// Accepts the open invitations for an account's verified address. Called once the caller has proved that
    /// the account is theirs: at each login, at a verification with the password, at the confirmation of a
    /// new address, and when a sign-on creates the account.
    pub accept_invitations: UserHook<()>,
    /// Ends the API keys and the invitations that were created with an account, and returns one line for each
    /// organization that the account belongs to. Called if the address is first verified together with a new
    /// password: another person may have used the account before.
    pub reclaim: UserHook<Vec<String>>,
    /// Gives credit to the user's first organization. Called after [`Hooks::accept_invitations`] and
    /// [`Hooks::reclaim`], and before e-mails are counted, because it locks a wallet.
    pub give_first_credit: VerifiedEmailHook,
    /// Creates, changes or ends the membership that a provider grants. Called after the user has signed in
    /// with the provider.
    pub apply_sign_on: SignOnHook,
}
