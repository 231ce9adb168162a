//! The kinds of e-mails.

use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::bounds::Counter;

/// The kind of an e-mail. A queued e-mail contains no token, because tokens are created when e-mails are
/// sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Template {
    /// A link that verifies an account's e-mail address.
    VerifyEmail,
    /// A link that resets the password; not sent if the address has no account.
    ResetPassword,
    /// A notice that the password was changed.
    PasswordChanged,
    /// An invitation to an organization.
    Invitation,
    /// A notice to a user who was added to a project.
    AddedToProject,
    /// A notice to the members of a deleted organization.
    OrganizationDeleted,
    /// A notice to the members of a deleted project.
    ProjectDeleted,
    /// A notice of failed logins; not sent if the address has no account or isn't verified.
    LoginsRefused,
    /// A notice of a login from a new network.
    NewLogin,
    /// A link that confirms the new e-mail address of an account. If the new address already has an account,
    /// a notice to it.
    ChangeEmail,
    /// A notice to an account's address that a change of the address was requested.
    EmailChangeRequested,
    /// A notice to the former address of an account.
    EmailChanged,
    /// A notice that an authenticator app was added.
    SecondFactorAdded,
    /// A notice that the second factor was removed.
    SecondFactorRemoved,
    /// A notice that a recovery code was used.
    RecoveryCodeUsed,
    /// A notice that a passkey was added.
    PasskeyAdded,
    /// A notice that a passkey was removed.
    PasskeyRemoved,
    /// A notice to a user, or to the owners of an organization, about a change made by an operator.
    ChangedByOperator,
    /// A notice that the account was connected to a provider.
    ProviderConnected,
    /// A notice that a connection to a provider was removed.
    ProviderDisconnected,
    /// A notice to the users who can view an organization's billing that a budget has reached a threshold.
    BudgetThreshold,
    /// A notice to the users who can view an organization's billing that its balance is below the threshold
    /// of the alert.
    BalanceLow,
    /// A notice to the owners of an organization, or to the operators, that one of their webhooks was
    /// disabled.
    WebhookDisabled,
    /// A notice to the owners of an organization that its automatic top-up was declined, was paused, or must
    /// be confirmed.
    AutoTopUp,
}

db::words!(Template);

impl Template {
    /// Returns `true` if the e-mail only reports an event, so that it may be dropped when a limit is reached.
    pub const fn is_notice(self) -> bool {
        match self {
            Self::VerifyEmail | Self::ResetPassword | Self::Invitation | Self::ChangeEmail => false,
            Self::PasswordChanged
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin
            | Self::EmailChangeRequested
            | Self::EmailChanged
            | Self::SecondFactorAdded
            | Self::SecondFactorRemoved
            | Self::RecoveryCodeUsed
            | Self::PasskeyAdded
            | Self::PasskeyRemoved
            | Self::ChangedByOperator
            | Self::ProviderConnected
            | Self::ProviderDisconnected
            | Self::BudgetThreshold
            | Self::BalanceLow
            | Self::WebhookDisabled
            | Self::AutoTopUp => true,
        }
    }

    /// Returns the counter for recipients of this kind of e-mail.
    pub const fn counter(self) -> Counter {
        match self {
            Self::VerifyEmail | Self::ChangeEmail => Counter::Verification,
            Self::ResetPassword => Counter::PasswordReset,
            Self::PasswordChanged
            | Self::Invitation
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin
            | Self::EmailChangeRequested
            | Self::EmailChanged
            | Self::SecondFactorAdded
            | Self::SecondFactorRemoved
            | Self::RecoveryCodeUsed
            | Self::PasskeyAdded
            | Self::PasskeyRemoved
            | Self::ChangedByOperator
            | Self::ProviderConnected
            | Self::ProviderDisconnected
            | Self::BudgetThreshold
            | Self::BalanceLow
            | Self::WebhookDisabled
            | Self::AutoTopUp => Counter::Recipient,
        }
    }

    /// Returns 0 for links that users are waiting for, and 1 for other e-mails, which are sent later.
    pub(crate) const fn priority(self) -> i64 {
        match self {
            Self::VerifyEmail | Self::ResetPassword | Self::ChangeEmail => 0,
            Self::PasswordChanged
            | Self::Invitation
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin
            | Self::EmailChangeRequested
            | Self::EmailChanged
            | Self::SecondFactorAdded
            | Self::SecondFactorRemoved
            | Self::RecoveryCodeUsed
            | Self::PasskeyAdded
            | Self::PasskeyRemoved
            | Self::ChangedByOperator
            | Self::ProviderConnected
            | Self::ProviderDisconnected
            | Self::BudgetThreshold
            | Self::BalanceLow
            | Self::WebhookDisabled
            | Self::AutoTopUp => 1,
        }
    }
}
