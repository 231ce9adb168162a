//! The labels of the product's terms.

use tenants::roles::{OrganizationRole, ProjectRole};
use tenants::rules::{membership, project_membership};

/// An option of a form: the value and its label.
pub type Choice = (&'static str, &'static str);

const ORGANIZATION_ROLES: [(OrganizationRole, Choice); 3] = [
    (OrganizationRole::Member, ("member", "Member: sees the organization and its public projects")),
    (OrganizationRole::Admin, ("admin", "Admin: manages everything, but can't add owners")),
    (OrganizationRole::Owner, ("owner", "Owner: full access")),
];

const PROJECT_ROLES: [(ProjectRole, Choice); 4] = [
    (ProjectRole::Viewer, ("viewer", "Viewer: sees the project and its usage")),
    (ProjectRole::Developer, ("developer", "Developer: can also call models")),
    (ProjectRole::Admin, ("admin", "Admin: manages keys and members")),
    (ProjectRole::Owner, ("owner", "Owner: full access")),
];

/// Returns the roles in an organization that a user with this role may grant.
pub fn grantable(caller: OrganizationRole) -> Vec<Choice> {
    let roles = ORGANIZATION_ROLES.into_iter().filter(|(role, _)| membership::may_grant(caller, *role));
    roles.map(|(_, choice)| choice).collect()
}

/// Returns the roles in a project that a user with this effective role may grant.
pub fn grantable_in_project(caller: ProjectRole) -> Vec<Choice> {
    let roles =
        PROJECT_ROLES.into_iter().filter(|(role, _)| project_membership::may_check_grant(caller, *role));
    roles.map(|(_, choice)| choice).collect()
}

/// Returns the label of an action in the audit trail: `API key created` for `api_key.created`.
pub fn action(word: &str) -> String {
    let words = word.replace(['.', '_'], " ");
    if let Some(rest) = words.strip_prefix("api ") {
        return format!("API {rest}");
    }
    let mut characters = words.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_sentences() {
        let cases = [
            ("api_key.rotation_ended", "API key rotation ended"),
            ("organization_member.role_changed", "Organization member role changed"),
            ("invitation.created", "Invitation created"),
            ("", ""),
        ];
        for (word, expected) in cases {
            assert_eq!(action(word), expected);
        }
    }

    #[test]
    fn only_roles_that_one_may_give_are_offered() {
        let words = |choices: Vec<Choice>| choices.into_iter().map(|(word, _)| word).collect::<Vec<_>>();
        assert_eq!(words(grantable(OrganizationRole::Owner)), ["member", "admin", "owner"]);
        assert_eq!(words(grantable(OrganizationRole::Admin)), ["member", "admin"]);
        assert!(grantable(OrganizationRole::Member).is_empty());
        assert_eq!(
            words(grantable_in_project(ProjectRole::Owner)),
            ["viewer", "developer", "admin", "owner"]
        );
        assert_eq!(words(grantable_in_project(ProjectRole::Admin)), ["viewer", "developer", "admin"]);
        assert!(grantable_in_project(ProjectRole::Developer).is_empty());
    }
}
