//! Limits on the actions of a caller, account or tenant: the table `limits` of the configuration.

use serde::{Deserialize, Deserializer, Serialize};

use crate::document::values::whole;

/// The table `limits` of the configuration. Restrictions of API keys apply even if the table is disabled.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `true` if the limits of this table apply.
    pub enabled: bool,
    /// Read-only management calls per minute and caller.
    #[serde(deserialize_with = "count")]
    pub reads_per_minute: u32,
    /// Management calls that write, per minute and caller.
    #[serde(deserialize_with = "count")]
    pub writes_per_minute: u32,
    /// Login attempts per minute and client address.
    #[serde(deserialize_with = "count")]
    pub logins_per_minute: u32,
    /// Registrations per minute and client address.
    #[serde(deserialize_with = "count")]
    pub registrations_per_minute: u32,
    /// Requests for a password reset, per hour and e-mail address.
    #[serde(deserialize_with = "count")]
    pub password_resets_per_hour: u32,
    /// Failed logins of an account from one network before the waits begin.
    #[serde(deserialize_with = "whole::<1, 1_000, _, _>")]
    pub login_failures: u32,
    /// Failed logins of an account from all networks without a successful login, before the waits begin for
    /// all networks.
    #[serde(deserialize_with = "whole::<1, 100_000, _, _>")]
    pub login_failures_all_networks: u32,
    /// Unknown API keys and wrong service tokens, per minute and client network.
    #[serde(deserialize_with = "count")]
    pub bad_credentials_per_minute: u32,
    /// E-mails that verify an e-mail address, per hour and address.
    #[serde(deserialize_with = "count")]
    pub verifications_per_hour: u32,
    /// E-mails other than resets and verifications, per hour and e-mail address.
    #[serde(deserialize_with = "count")]
    pub mails_per_recipient_hour: u32,
    /// E-mails that a user causes per hour, including e-mails caused by the user's API keys.
    #[serde(deserialize_with = "count")]
    pub mails_per_account_hour: u32,
    /// E-mails caused from a client address, per hour.
    #[serde(deserialize_with = "count")]
    pub mails_per_address_hour: u32,
    /// Existing organizations that a user has created.
    #[serde(deserialize_with = "count")]
    pub organizations_per_person: u32,
    /// Projects of an organization.
    #[serde(deserialize_with = "count")]
    pub projects_per_organization: u32,
    /// Open invitations of an organization.
    #[serde(deserialize_with = "count")]
    pub open_invitations_per_organization: u32,
    /// API keys of a project.
    #[serde(deserialize_with = "count")]
    pub api_keys_per_project: u32,
    /// Webhooks of an organization.
    #[serde(deserialize_with = "whole::<1, 100, _, _>")]
    pub webhooks_per_organization: u32,
    /// Changes of an account's password, per hour.
    #[serde(deserialize_with = "count")]
    pub password_changes_per_hour: u32,
    /// Live sessions of a user. A login beyond the limit ends the oldest session.
    #[serde(deserialize_with = "whole::<1, 10_000, _, _>")]
    pub sessions_per_person: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enabled: true,
            reads_per_minute: 1_200,
            writes_per_minute: 600,
            logins_per_minute: 300,
            registrations_per_minute: 60,
            password_resets_per_hour: 5,
            login_failures: 10,
            login_failures_all_networks: 100,
            bad_credentials_per_minute: 600,
            verifications_per_hour: 5,
            mails_per_recipient_hour: 20,
            mails_per_account_hour: 200,
            mails_per_address_hour: 3_600,
            organizations_per_person: 20,
            projects_per_organization: 200,
            open_invitations_per_organization: 200,
            api_keys_per_project: 1_000,
            webhooks_per_organization: 10,
            password_changes_per_hour: 5,
            sessions_per_person: 50,
        }
    }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    whole::<1, 1_000_000, _, _>(deserializer)
}
