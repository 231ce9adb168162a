//! Limits on the number of rows of a kind that a user, an organization or a project can have.

use kernel::error::{Code, Error};
use kernel::limits::Limits;

/// A kind of row whose number is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountedKind {
    /// Organizations that a user created and that still exist.
    Organizations,
    /// Projects of an organization.
    Projects,
    /// Open invitations of an organization.
    Invitations,
    /// API keys of a project.
    ApiKeys,
    /// Webhooks of an organization.
    Webhooks,
    /// Webhooks of the installation.
    WebhooksOfInstallation,
}

/// Checks whether one more row of a kind may be added if `count` of them exist. The caller must hold a lock,
/// so that no other transaction can add a row of this kind.
///
/// # Errors
/// 409 `limit_reached`.
pub fn check_limit(limits: &Limits, kind: CountedKind, count: i64) -> Result<(), Error> {
    let (key, limit, sentence) = match kind {
        CountedKind::Organizations => (
            "organizations_per_person",
            limits.organizations_per_person,
            "You have reached the maximum number of organizations: delete one",
        ),
        CountedKind::Projects => (
            "projects_per_organization",
            limits.projects_per_organization,
            "This organization has the maximum number of projects: delete one",
        ),
        CountedKind::Invitations => (
            "open_invitations_per_organization",
            limits.open_invitations_per_organization,
            "This organization has the maximum number of open invitations: wait until some are accepted or expire",
        ),
        CountedKind::ApiKeys => (
            "api_keys_per_project",
            limits.api_keys_per_project,
            "This project has the maximum number of API keys: delete one",
        ),
        CountedKind::Webhooks => (
            "webhooks_per_organization",
            limits.webhooks_per_organization,
            "This organization has the maximum number of webhooks: delete one",
        ),
        CountedKind::WebhooksOfInstallation => (
            "webhooks_per_organization",
            limits.webhooks_per_organization,
            "The installation has the maximum number of webhooks: delete one",
        ),
    };
    if !limits.enabled || count < i64::from(limit) {
        return Ok(());
    }
    let message = format!("{sentence}, or ask for a higher `limits.{key}`, which is {limit}.");
    Err(Error::new(Code::LimitReached).message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_below_the_limit_is_allowed() {
        let mut limits = Limits::default();
        let kinds = [
            CountedKind::Organizations,
            CountedKind::Projects,
            CountedKind::Invitations,
            CountedKind::ApiKeys,
            CountedKind::Webhooks,
            CountedKind::WebhooksOfInstallation,
        ];
        for (kind, limit) in kinds.into_iter().zip([20, 200, 200, 1_000, 10, 10]) {
            assert!(check_limit(&limits, kind, limit - 1).is_ok(), "{kind:?}");
            let refused = check_limit(&limits, kind, limit).unwrap_err();
            assert_eq!(refused.code, Code::LimitReached);
            assert!(refused.public_message().contains(&format!("which is {limit}.")), "{refused}");
        }
        limits.enabled = false;
        assert!(check_limit(&limits, CountedKind::Projects, 1_000_000).is_ok());
    }
}
