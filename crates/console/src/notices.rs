//! Notices of what has just been done: words in the query, sentences on the page.

/// What has just been done. A page shows its sentence after the redirect that ends a POST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    SignedOut,
    Registered,
    FirstAccountCreated,
    UserDisabled,
    UserEnabled,
    UserSessionsEnded,
    UserSecondFactorReset,
    CreditAdded,
    CreditThere,
    CreditLimitSet,
    InvoicePaid,
    InvoiceVoided,
    BudgetCreated,
    BudgetChanged,
    BudgetDeleted,
    CatalogReloadOrdered,
    MailsRetried,
    TestMailSent,
    ResetRequested,
    OrganizationCreated,
    RoleChanged,
    MemberRemoved,
    OrganizationLeft,
    MemberInvited,
    InvitationResent,
    InvitationResentBefore,
    InvitationWithdrawn,
    OrganizationChanged,
    OrganizationDeleted,
    ProjectMemberAdded,
    ProjectMemberThere,
    ProjectLeft,
    ProfileSaved,
    VerificationSent,
    AlreadyVerified,
    EmailChangeRequested,
    PasswordChanged,
    SessionEnded,
    OtherSessionsEnded,
    ThemeSaved,
    ProjectCreated,
    Changed,
    ProjectDeleted,
    KeyChanged,
    KeyDeleted,
    RotationEnded,
    TotpReplaced,
    SecondFactorRemoved,
    TotpRemoved,
    PasskeyAdded,
    PasskeyRenamed,
    PasskeyRemoved,
    Connected,
    Disconnected,
}

impl Done {
    /// Every notice with its word and its sentence.
    const ALL: &[(Self, &'static str, &'static str)] = &[
        (Self::SignedOut, "signed_out", "You are signed out."),
        (
            Self::Registered,
            "registered",
            "Your account is ready. A mail with a link to confirm your address is on its way.",
        ),
        (
            Self::FirstAccountCreated,
            "first_account_created",
            "Your account is ready, and runs this installation. Sign in, and add a second factor.",
        ),
        (Self::UserDisabled, "user_disabled", "The account is disabled, and its sessions have ended."),
        (Self::UserEnabled, "user_enabled", "The account is enabled again."),
        (Self::UserSessionsEnded, "user_sessions_ended", "The sessions have ended."),
        (Self::UserSecondFactorReset, "user_second_factor_reset", "The second factor is removed."),
        (Self::CreditAdded, "credit_added", "The credit is added."),
        (
            Self::CreditThere,
            "credit_there",
            "A credit with this reference was there already. Nothing was added.",
        ),
        (Self::CreditLimitSet, "credit_limit_set", "The credit limit is set."),
        (Self::InvoicePaid, "invoice_paid", "The invoice is paid."),
        (Self::InvoiceVoided, "invoice_voided", "The invoice is void."),
        (Self::BudgetCreated, "budget_created", "The budget is there, and holds from the next call on."),
        (Self::BudgetChanged, "budget_changed", "The budget is changed, and holds from the next call on."),
        (Self::BudgetDeleted, "budget_deleted", "The budget is deleted."),
        (
            Self::CatalogReloadOrdered,
            "catalog_reload_ordered",
            "Every server reads its catalog file again within a second. Their logs show the result.",
        ),
        (Self::MailsRetried, "mails_retried", "The mails are being sent."),
        (Self::TestMailSent, "test_mail_sent", "The test mail was handed over."),
        (
            Self::ResetRequested,
            "reset_requested",
            "If there is an account with this address, a mail with a link is on its way to it.",
        ),
        (Self::OrganizationCreated, "organization_created", "The organization is ready."),
        (Self::RoleChanged, "role_changed", "The role is changed."),
        (Self::MemberRemoved, "member_removed", "The member is removed."),
        (Self::OrganizationLeft, "organization_left", "You have left the organization."),
        (Self::MemberInvited, "member_invited", "The invitation is on its way."),
        (
            Self::InvitationResent,
            "invitation_resent",
            "The invitation is sent again, with a new link. The older link no longer works.",
        ),
        (
            Self::InvitationResentBefore,
            "invitation_resent_before",
            "It had just been sent again. No second mail was sent.",
        ),
        (
            Self::InvitationWithdrawn,
            "invitation_withdrawn",
            "The invitation is withdrawn: its link no longer works.",
        ),
        (Self::OrganizationChanged, "organization_changed", "The settings are saved."),
        (Self::OrganizationDeleted, "organization_deleted", "The organization is deleted."),
        (Self::ProjectMemberAdded, "project_member_added", "The member is added to the project."),
        (Self::ProjectMemberThere, "project_member_there", "This person is a member of the project already."),
        (Self::ProjectLeft, "project_left", "You have left the project."),
        (Self::ProfileSaved, "profile_saved", "Your profile is saved."),
        (
            Self::VerificationSent,
            "verification_sent",
            "A mail with another link is on its way to your address.",
        ),
        (Self::AlreadyVerified, "already_verified", "Your address is verified already."),
        (
            Self::EmailChangeRequested,
            "email_change_requested",
            "A mail with a link is on its way to the new address: your address changes when you use it.",
        ),
        (
            Self::PasswordChanged,
            "password_changed",
            "Your password is changed. Your other sessions have ended.",
        ),
        (Self::SessionEnded, "session_ended", "The session has ended."),
        (Self::OtherSessionsEnded, "other_sessions_ended", "Your other sessions have ended."),
        (Self::ThemeSaved, "theme_saved", "The theme is saved in this browser."),
        (
            Self::ProjectCreated,
            "project_created",
            "The project is ready. Create an API key to call models with.",
        ),
        (Self::Changed, "changed", "The changes are saved."),
        (
            Self::ProjectDeleted,
            "project_deleted",
            "The project is deleted, with its API keys and memberships.",
        ),
        (Self::KeyChanged, "key_changed", "The changes are saved. They hold within a second."),
        (Self::KeyDeleted, "key_deleted", "The API key is deleted: it can't be used any more."),
        (
            Self::TotpReplaced,
            "totp_replaced",
            "The new authenticator app is in use. Codes of the earlier one no longer work.",
        ),
        (
            Self::SecondFactorRemoved,
            "second_factor_removed",
            "Your second factor is removed. Your password alone signs you in.",
        ),
        (
            Self::TotpRemoved,
            "totp_removed",
            "Your authenticator app is removed. Your password still takes a second factor.",
        ),
        (Self::PasskeyAdded, "passkey_added", "Your passkey is ready: it signs you in without the password."),
        (Self::PasskeyRenamed, "passkey_renamed", "The passkey has its new name."),
        (Self::PasskeyRemoved, "passkey_removed", "The passkey is removed. Delete it on your device, too."),
        (Self::Connected, "connected", "Your account is connected: you can sign in with it from now on."),
        (
            Self::Disconnected,
            "disconnected",
            "The connection is removed. The sessions that it had opened have ended.",
        ),
        (Self::RotationEnded, "rotation_ended", "The previous secret is ended: it can't be used any more."),
    ];

    /// Returns the word, as in `?done=signed_out`.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(done, ..)| *done == self).map_or("", |(_, word, _)| word)
    }

    /// Returns the sentence for the word in a query string; text from a query is never shown.
    pub fn sentence(query: &str) -> Option<&'static str> {
        let word = query.split('&').find_map(|pair| pair.strip_prefix("done="))?;
        Self::ALL.iter().find(|(_, known, _)| *known == word).map(|(.., sentence)| *sentence)
    }
}
