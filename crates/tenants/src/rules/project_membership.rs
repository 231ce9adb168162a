//! Rules for granting roles in a project (docs/contract/access.md#granting-roles).
//!
//! The scope has checked that the caller may manage members. These rules also depend on the member's old and
//! new roles. One table lists the roles that each role can grant, and the functions below read it. Callers'
//! roles are effective roles, so owners and admins of the organization count as owners. A project can be left
//! without an explicit owner, because the organization's owners still act as owners.

use crate::roles::{OrganizationAction, OrganizationRole, ProjectRole};
use crate::rules::membership::{Grantor, Remover, key_makes_owner_error};
use kernel::error::{Code, Error};

const YES: bool = true;
const NO: bool = false;

/// Returns `true` if a caller with the role `caller` may grant or revoke `role`. A caller who can't grant a
/// role can't revoke it either.
#[rustfmt::skip]
pub const fn may_check_grant(caller: ProjectRole, role: ProjectRole) -> bool {
    let [owner, admin, developer, viewer] = match caller {
        //                            owner admin devel viewer
        ProjectRole::Owner     => [YES, YES, YES, YES],
        ProjectRole::Admin     => [NO,  YES, YES, YES],
        ProjectRole::Developer => [NO,  NO,  NO,  NO ],
        ProjectRole::Viewer    => [NO,  NO,  NO,  NO ],
    };
    match role {
        ProjectRole::Owner => owner,
        ProjectRole::Admin => admin,
        ProjectRole::Developer => developer,
        ProjectRole::Viewer => viewer,
    }
}

/// Checks whether a user may be added with this role. `is_newcomer` is `true` if the user doesn't belong to
/// the organization yet. Such a user is added to the organization too, so the caller must be allowed to
/// manage its members.
///
/// # Errors
/// 403.
pub fn check_addition(
    caller: Grantor<ProjectRole>,
    caller_in_organization: Option<OrganizationRole>,
    role: ProjectRole,
    is_newcomer: bool,
) -> Result<(), Error> {
    check_grant(caller, role)?;
    let may_add_newcomers =
        caller_in_organization.is_some_and(|role| role.allows(OrganizationAction::ManageMembers));
    if is_newcomer && !may_add_newcomers {
        let message = "This user isn't a member of the organization. Ask one of its owners or admins to add \
                       them.";
        return Err(Error::new(Code::InsufficientRole).param("user_id").message(message));
    }
    Ok(())
}

/// Checks whether a member's role may change.
///
/// # Errors
/// 403 if the caller may not revoke the old role or grant the new one.
pub fn check_change(
    caller: Grantor<ProjectRole>,
    before: ProjectRole,
    after: ProjectRole,
) -> Result<(), Error> {
    check_role(caller.role, before)?;
    if before == after { Ok(()) } else { check_grant(caller, after) }
}

/// Checks whether a member may be removed. Every member may leave.
///
/// # Errors
/// 403 if the caller may not revoke this role.
pub fn check_removal(by: Remover<ProjectRole>, role: ProjectRole) -> Result<(), Error> {
    match by {
        Remover::Oneself => Ok(()),
        Remover::Other(caller) => check_role(caller, role),
    }
}

fn check_role(caller: ProjectRole, role: ProjectRole) -> Result<(), Error> {
    if may_check_grant(caller, role) { Ok(()) } else { Err(Code::InsufficientRole.into()) }
}

fn check_grant(caller: Grantor<ProjectRole>, role: ProjectRole) -> Result<(), Error> {
    check_role(caller.role, role).map_err(|error| error.param("role"))?;
    if caller.is_key && role == ProjectRole::Owner { Err(key_makes_owner_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProjectRole::{Admin, Developer, Owner, Viewer};

    const ROLES: [ProjectRole; 4] = [Owner, Admin, Developer, Viewer];

    /// All combinations of the caller's role, the old role and the new role.
    #[rustfmt::skip]
    const CHANGES: [(ProjectRole, ProjectRole, [bool; 4]); 16] = [
        // caller, before         after: owner admin devel viewer
        (Owner,     Owner,     [YES, YES, YES, YES]),
        (Owner,     Admin,     [YES, YES, YES, YES]),
        (Owner,     Developer, [YES, YES, YES, YES]),
        (Owner,     Viewer,    [YES, YES, YES, YES]),
        (Admin,     Owner,     [NO,  NO,  NO,  NO ]),
        (Admin,     Admin,     [NO,  YES, YES, YES]),
        (Admin,     Developer, [NO,  YES, YES, YES]),
        (Admin,     Viewer,    [NO,  YES, YES, YES]),
        (Developer, Owner,     [NO,  NO,  NO,  NO ]),
        (Developer, Admin,     [NO,  NO,  NO,  NO ]),
        (Developer, Developer, [NO,  NO,  NO,  NO ]),
        (Developer, Viewer,    [NO,  NO,  NO,  NO ]),
        (Viewer,    Owner,     [NO,  NO,  NO,  NO ]),
        (Viewer,    Admin,     [NO,  NO,  NO,  NO ]),
        (Viewer,    Developer, [NO,  NO,  NO,  NO ]),
        (Viewer,    Viewer,    [NO,  NO,  NO,  NO ]),
    ];

    fn is_allowed(result: &Result<(), Error>) -> bool {
        assert!(result.as_ref().err().is_none_or(|error| error.code == Code::InsufficientRole));
        result.is_ok()
    }

    fn person(role: ProjectRole) -> Grantor<ProjectRole> {
        Grantor { role, is_key: false }
    }

    #[test]
    fn key_grants_every_role_of_its_creator_except_owner() {
        let by_key = |role| Grantor { role, is_key: true };
        let code = |result: Result<(), Error>| result.map_err(|error| error.code);
        let organization = Some(OrganizationRole::Owner);
        assert_eq!(code(check_addition(by_key(Owner), organization, Admin, true)), Ok(()));
        assert_eq!(
            code(check_addition(by_key(Owner), organization, Owner, true)),
            Err(Code::KeyExceedsCaller)
        );
        assert_eq!(
            code(check_addition(by_key(Admin), organization, Owner, true)),
            Err(Code::InsufficientRole)
        );
        assert_eq!(code(check_change(by_key(Owner), Admin, Owner)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(check_change(by_key(Owner), Owner, Owner)), Ok(()));
        assert_eq!(code(check_change(by_key(Owner), Owner, Viewer)), Ok(()));
    }

    #[test]
    fn role_changes_follow_the_table() {
        for (caller, before, row) in CHANGES {
            for (after, allowed) in ROLES.into_iter().zip(row) {
                let found = check_change(person(caller), before, after);
                assert_eq!(is_allowed(&found), allowed, "{caller:?} makes {before:?} {after:?}");
                // No caller grants a role above their own.
                assert!(!allowed || after <= caller);
            }
        }
    }

    #[test]
    fn removals_follow_the_table() {
        for role in ROLES {
            assert!(is_allowed(&check_removal(Remover::Oneself, role)));
            for caller in ROLES {
                let found = check_removal(Remover::Other(caller), role);
                assert_eq!(is_allowed(&found), may_check_grant(caller, role), "{caller:?} removes {role:?}");
            }
        }
    }

    #[test]
    fn additions_follow_the_table() {
        use OrganizationRole as O;
        for (organization, may_add_newcomers) in
            [(None, NO), (Some(O::Member), NO), (Some(O::Admin), YES), (Some(O::Owner), YES)]
        {
            for caller in ROLES {
                for role in ROLES {
                    let grants = may_check_grant(caller, role);
                    assert_eq!(
                        is_allowed(&check_addition(person(caller), organization, role, false)),
                        grants
                    );
                    let found = check_addition(person(caller), organization, role, true);
                    assert_eq!(
                        is_allowed(&found),
                        grants && may_add_newcomers,
                        "{organization:?} {caller:?} {role:?}"
                    );
                }
            }
        }
    }
}
