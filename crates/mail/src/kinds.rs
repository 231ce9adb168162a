//! The kinds of e-mails.

use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::bounds::Counter;

/// The kind of an e-mail. Tokens are created when it is sent: none is stored here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Template {
    /// Confirmation of an e-mail address.
    VerifyEmail,
    /// A link for a new password; not sent if the address has no account.
    ResetPassword,
    /// A notice that the password was changed.
    PasswordChanged,
    /// An invitation into an organization.
    Invitation,
    /// A notice to a person who was added to a project.
    AddedToProject,
    /// A notice to the members of a deleted organization.
    OrganizationDeleted,
    /// A notice to the members of a deleted project.
    ProjectDeleted,
    /// A notice of failed logins; not sent if the address has no account or isn't verified.
    LoginsRefused,
    /// A notice of a login from a new network.
    NewLogin,
    /// A link to a new e-mail address; a notice instead if that address has an account.
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
    /// A notice to a person, or to the owners of an organization, about a change made by an operator.
    ChangedByOperator,
    /// A notice that the account was connected with a provider.
    ProviderConnected,
    /// A notice that a connection with a provider was removed.
    ProviderDisconnected,
    /// A notice to those who see an organization's billing that a budget has reached a threshold.
    BudgetThreshold,
    /// A notice to the same that the balance is below the threshold of its alert.
    BalanceLow,
    /// A notice to the owners of an organization, or to the operators, that a webhook of theirs was switched off.
    WebhookDisabled,
    /// A notice to the owners of an organization about its automatic top-up: declined, paused, or to be
    /// confirmed.
    AutoTopUp,
}

db::words!(Template);

impl Template {
    /// Returns `true` if it only reports something that was done, so that it may be dropped at a limit.
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

    /// Returns the counter of its recipients.
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

    /// Returns 0 for links that people wait for, and 1 for all others, which are sent after them.
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
