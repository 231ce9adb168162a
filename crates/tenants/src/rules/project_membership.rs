//! Who may make whom what in a project (docs/contract/access.md#granting-roles).
//!
//! The gate has found out whether a caller manages members at all. What is left depends on whose role it is and what it
//! becomes: one table says which roles a role gives out, and the functions below read it. Roles of callers are effective
//! ones, so organization owners and admins count as owners. A project may be left without an owner of its own: the
//! organization's owners still act as such.

use crate::roles::{OrganizationAction, OrganizationRole, ProjectRole};
use crate::rules::membership::{Grantor, Remover, key_makes_owner};
use kernel::error::{Code, Error};

const YES: bool = true;
const NO: bool = false;

/// Whether somebody with this role may give another one to somebody, or take it away: what one can't make, one can't
/// unmake either.
#[rustfmt::skip]
pub const fn may_grant(caller: ProjectRole, role: ProjectRole) -> bool {
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

/// Whether somebody may be added with this role. `is_newcomer`: they don't belong to the organization yet, and whoever
/// adds them brings them in, which takes somebody who manages the organization's members.
///
/// # Errors
/// 403.
pub fn add(
    caller: Grantor<ProjectRole>,
    caller_in_organization: Option<OrganizationRole>,
    role: ProjectRole,
    is_newcomer: bool,
) -> Result<(), Error> {
    grant(caller, role)?;
    let brings_in = caller_in_organization.is_some_and(|role| role.allows(OrganizationAction::ManageMembers));
    if is_newcomer && !brings_in {
        let message = "This person does not belong to the organization: ask one of its owners or admins.";
        return Err(Error::new(Code::InsufficientRole).param("user_id").message(message));
    }
    Ok(())
}

/// Whether a member's role may become another one.
///
/// # Errors
/// 403 when the caller may not touch the old role or give the new one.
pub fn change_role(
    caller: Grantor<ProjectRole>,
    before: ProjectRole,
    after: ProjectRole,
) -> Result<(), Error> {
    touch(caller.role, before)?;
    if before == after { Ok(()) } else { grant(caller, after) }
}

/// Whether a member may go. Everybody may leave.
///
/// # Errors
/// 403 when the caller may not touch this role.
pub fn remove(by: Remover<ProjectRole>, role: ProjectRole) -> Result<(), Error> {
    match by {
        Remover::Oneself => Ok(()),
        Remover::Other(caller) => touch(caller, role),
    }
}

fn touch(caller: ProjectRole, role: ProjectRole) -> Result<(), Error> {
    if may_grant(caller, role) { Ok(()) } else { Err(Code::InsufficientRole.into()) }
}

fn grant(caller: Grantor<ProjectRole>, role: ProjectRole) -> Result<(), Error> {
    touch(caller.role, role).map_err(|error| error.param("role"))?;
    if caller.is_key && role == ProjectRole::Owner { Err(key_makes_owner()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProjectRole::{Admin, Developer, Owner, Viewer};

    const ROLES: [ProjectRole; 4] = [Owner, Admin, Developer, Viewer];

    /// Every caller, old role and new role.
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
    fn a_key_gives_every_role_of_its_person_but_owner() {
        let by_key = |role| Grantor { role, is_key: true };
        let code = |result: Result<(), Error>| result.map_err(|error| error.code);
        let organization = Some(OrganizationRole::Owner);
        assert_eq!(code(add(by_key(Owner), organization, Admin, true)), Ok(()));
        assert_eq!(code(add(by_key(Owner), organization, Owner, true)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(add(by_key(Admin), organization, Owner, true)), Err(Code::InsufficientRole));
        assert_eq!(code(change_role(by_key(Owner), Admin, Owner)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(change_role(by_key(Owner), Owner, Owner)), Ok(()));
        assert_eq!(code(change_role(by_key(Owner), Owner, Viewer)), Ok(()));
    }

    #[test]
    fn who_may_give_which_role_to_whom() {
        for (caller, before, row) in CHANGES {
            for (after, allowed) in ROLES.into_iter().zip(row) {
                let found = change_role(person(caller), before, after);
                assert_eq!(is_allowed(&found), allowed, "{caller:?} makes {before:?} {after:?}");
                // Nobody gives a role above their own.
                assert!(!allowed || after <= caller);
            }
        }
    }

    #[test]
    fn who_may_remove_whom() {
        for role in ROLES {
            assert!(is_allowed(&remove(Remover::Oneself, role)));
            for caller in ROLES {
                let found = remove(Remover::Other(caller), role);
                assert_eq!(is_allowed(&found), may_grant(caller, role), "{caller:?} removes {role:?}");
            }
        }
    }

    #[test]
    fn who_may_add_whom() {
        use OrganizationRole as O;
        for (organization, brings_in) in
            [(None, NO), (Some(O::Member), NO), (Some(O::Admin), YES), (Some(O::Owner), YES)]
        {
            for caller in ROLES {
                for role in ROLES {
                    let grants = may_grant(caller, role);
                    assert_eq!(is_allowed(&add(person(caller), organization, role, false)), grants);
                    let found = add(person(caller), organization, role, true);
                    assert_eq!(
                        is_allowed(&found),
                        grants && brings_in,
                        "{organization:?} {caller:?} {role:?}"
                    );
                }
            }
        }
    }
}
