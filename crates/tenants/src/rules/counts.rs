//! How many of a kind there may be: limits of what one person or tenant can pile up.

use kernel::error::{Code, Error};
use kernel::limits::Limits;

/// A kind of row whose number is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Organizations that a person has made and that still exist.
    Organizations,
    /// Projects of an organization.
    Projects,
    /// Open invitations of an organization.
    Invitations,
    /// API keys of a project.
    ApiKeys,
}

/// Whether there may be one more of a kind beside the `count` that are there. The caller holds a lock under which nobody else
/// adds one.
///
/// # Errors
/// 409 `limit_reached`.
pub fn one_more(limits: &Limits, kind: Kind, count: i64) -> Result<(), Error> {
    let (key, limit, sentence) = match kind {
        Kind::Organizations => (
            "organizations_per_person",
            limits.organizations_per_person,
            "You have made as many organizations as a person may have: delete one",
        ),
        Kind::Projects => (
            "projects_per_organization",
            limits.projects_per_organization,
            "This organization has as many projects as it may: delete one",
        ),
        Kind::Invitations => (
            "open_invitations_per_organization",
            limits.open_invitations_per_organization,
            "This organization has as many open invitations as it may: wait until some are accepted or have expired",
        ),
        Kind::ApiKeys => (
            "api_keys_per_project",
            limits.api_keys_per_project,
            "This project has as many API keys as it may: delete one",
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
    fn the_limit_is_the_last_that_may_be() {
        let mut limits = Limits::default();
        let kinds = [Kind::Organizations, Kind::Projects, Kind::Invitations, Kind::ApiKeys];
        for (kind, limit) in kinds.into_iter().zip([20, 200, 200, 1_000]) {
            assert!(one_more(&limits, kind, limit - 1).is_ok(), "{kind:?}");
            let refused = one_more(&limits, kind, limit).unwrap_err();
            assert_eq!(refused.code, Code::LimitReached);
            assert!(refused.public_message().contains(&format!("which is {limit}.")), "{refused}");
        }
        limits.enabled = false;
        assert!(one_more(&limits, Kind::Projects, 1_000_000).is_ok());
    }
}
