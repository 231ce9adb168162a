//! Rules for granting roles in an organization (docs/contract/access.md#granting-roles).
//!
//! The scope has checked that the caller may manage members. These rules also depend on the member's old and
//! new roles. One table lists the roles that each role can grant, and the functions below read it.

use crate::roles::OrganizationRole;
use kernel::error::{Code, Error};

const YES: bool = true;
const NO: bool = false;

/// Returns `true` if a caller with the role `caller` may grant or revoke `role`. A caller who can't grant a
/// role can't revoke it either.
#[rustfmt::skip]
pub const fn may_grant(caller: OrganizationRole, role: OrganizationRole) -> bool {
    let [owner, admin, member] = match caller {
        //                              owner admin member
        OrganizationRole::Owner  => [YES, YES, YES],
        OrganizationRole::Admin  => [NO,  YES, YES],
        OrganizationRole::Member => [NO,  NO,  NO ],
    };
    match role {
        OrganizationRole::Owner => owner,
        OrganizationRole::Admin => admin,
        OrganizationRole::Member => member,
    }
}

/// A caller that grants roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grantor<R> {
    pub role: R,
    /// `true` for an API key, which can't make owners, regardless of its creator's role.
    pub is_key: bool,
}

/// Returns the error for an API key that tries to grant the role `owner`.
pub fn key_makes_owner_error() -> Error {
    Error::new(Code::KeyExceedsCaller)
        .param("role")
        .message("An API key can't grant the role `owner`: use an access token.")
}

/// Returns the roles that a user with this role can't grant. When a member's role changes to this role, the
/// open invitations with those roles that the member has sent end.
pub fn roles_beyond(role: OrganizationRole) -> impl Iterator<Item = OrganizationRole> {
    let all = [OrganizationRole::Owner, OrganizationRole::Admin, OrganizationRole::Member];
    all.into_iter().filter(move |other| !may_grant(role, *other))
}

/// Checks whether a member's role may change. `has_other_owner` is `true` if another member is also an owner.
///
/// # Errors
/// 403 if the caller may not revoke the old role or grant the new one; 409 if the organization would be left
/// without an owner.
pub fn check_change(
    caller: Grantor<OrganizationRole>,
    before: OrganizationRole,
    after: OrganizationRole,
    has_other_owner: bool,
) -> Result<(), Error> {
    if !may_grant(caller.role, before) {
        return Err(Code::InsufficientRole.into());
    }
    if before != after {
        check_grant(caller, after)?;
    }
    let keeps_owner = after == OrganizationRole::Owner || has_other_owner;
    if before == OrganizationRole::Owner && !keeps_owner {
        return Err(Code::LastOwner.into());
    }
    Ok(())
}

/// A new role for a member of an organization or a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleChange<R> {
    /// The new role; `None` for no change.
    pub role: Option<R>,
    /// The role that the member is expected to have; `None` for any.
    pub before: Option<R>,
}

impl<R: Copy + PartialEq> RoleChange<R> {
    /// Returns an error if the current role is neither the expected role nor the new role, because someone
    /// else has changed it.
    ///
    /// # Errors
    /// 412.
    pub fn check_expected(&self, current: R) -> Result<(), Error> {
        let is_done = self.role == Some(current);
        match self.before {
            Some(before) if before != current && !is_done => Err(Code::PreconditionFailed.into()),
            _ => Ok(()),
        }
    }
}

/// The user who removes a member of an organization or a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remover<R> {
    /// The member, who leaves the organization or the project.
    Oneself,
    /// Another user, with this role.
    Other(R),
}

/// Checks whether a member may be removed. Every member except the last owner may leave.
///
/// # Errors
/// 403 if the caller may not revoke this role; 409 if the organization would be left without an owner.
pub fn check_removal(
    by: Remover<OrganizationRole>,
    role: OrganizationRole,
    has_other_owner: bool,
) -> Result<(), Error> {
    let allowed = match by {
        Remover::Oneself => true,
        Remover::Other(caller) => may_grant(caller, role),
    };
    if !allowed {
        return Err(Code::InsufficientRole.into());
    }
    if role == OrganizationRole::Owner && !has_other_owner {
        return Err(Code::LastOwner.into());
    }
    Ok(())
}

/// Checks whether the caller may invite a guest with this role, or send such an invitation again.
///
/// # Errors
/// 403 if the caller may not grant the role.
pub fn check_invitation(caller: Grantor<OrganizationRole>, role: OrganizationRole) -> Result<(), Error> {
    check_grant(caller, role)
}

/// Checks whether the caller may withdraw an invitation to this role.
///
/// # Errors
/// 403 if the caller may not grant the role.
pub fn check_withdrawal(caller: OrganizationRole, role: OrganizationRole) -> Result<(), Error> {
    if may_grant(caller, role) { Ok(()) } else { Err(Code::InsufficientRole.into()) }
}

fn check_grant(caller: Grantor<OrganizationRole>, role: OrganizationRole) -> Result<(), Error> {
    if !may_grant(caller.role, role) {
        return Err(Code::InsufficientRole.into());
    }
    if caller.is_key && role == OrganizationRole::Owner { Err(key_makes_owner_error()) } else { Ok(()) }
}

/// The outcome of accepting an invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// The guest becomes a member with this role.
    Join(OrganizationRole),
    /// The guest is already a member, and keeps the current role.
    AlreadyMember,
    /// The sender can no longer grant this role, so the invitation is void.
    Withdrawn,
}

/// Decides the outcome of an open invitation. `offered` is its role, and `sender` and `guest` are their
/// current roles, if they have any.
pub fn decide_acceptance(
    offered: OrganizationRole,
    sender: Option<OrganizationRole>,
    guest: Option<OrganizationRole>,
) -> Acceptance {
    if guest.is_some() {
        return Acceptance::AlreadyMember;
    }
    match sender {
        Some(sender) if may_grant(sender, offered) => Acceptance::Join(offered),
        _ => Acceptance::Withdrawn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OrganizationRole::{Admin, Member, Owner};

    const ROLES: [OrganizationRole; 3] = [Owner, Admin, Member];

    fn word(result: &Result<(), Error>) -> &'static str {
        result.as_ref().map_or_else(|error| error.code.as_str(), |()| "ok")
    }

    /// All combinations of the caller's role, the old role and the new role, if another owner exists.
    #[rustfmt::skip]
    const CHANGES: [(OrganizationRole, OrganizationRole, [bool; 3]); 9] = [
        // caller, before          after: owner admin member
        (Owner,  Owner,  [YES, YES, YES]),
        (Owner,  Admin,  [YES, YES, YES]),
        (Owner,  Member, [YES, YES, YES]),
        (Admin,  Owner,  [NO,  NO,  NO ]),
        (Admin,  Admin,  [NO,  YES, YES]),
        (Admin,  Member, [NO,  YES, YES]),
        (Member, Owner,  [NO,  NO,  NO ]),
        (Member, Admin,  [NO,  NO,  NO ]),
        (Member, Member, [NO,  NO,  NO ]),
    ];

    fn person(role: OrganizationRole) -> Grantor<OrganizationRole> {
        Grantor { role, is_key: false }
    }

    #[test]
    fn key_grants_every_role_of_its_creator_except_owner() {
        use OrganizationRole::{Admin, Member, Owner};
        let by_key = |role| Grantor { role, is_key: true };
        let code = |result: Result<(), Error>| result.map_err(|error| error.code);
        assert_eq!(code(check_invitation(by_key(Owner), Admin)), Ok(()));
        assert_eq!(code(check_invitation(by_key(Owner), Owner)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(check_invitation(by_key(Admin), Owner)), Err(Code::InsufficientRole));
        assert_eq!(code(check_change(by_key(Owner), Member, Admin, true)), Ok(()));
        assert_eq!(code(check_change(by_key(Owner), Admin, Owner, true)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(check_change(by_key(Owner), Owner, Owner, true)), Ok(()));
        assert_eq!(code(check_change(by_key(Owner), Owner, Admin, true)), Ok(()));
    }

    #[test]
    fn role_is_changed_from_the_expected_one() {
        let allows = |role, before, current| RoleChange { role, before }.check_expected(current).is_ok();
        for current in ROLES {
            for role in ROLES {
                assert!(allows(Some(role), None, current) && allows(Some(role), Some(current), current));
                for before in ROLES {
                    let expected = before == current || role == current;
                    assert_eq!(allows(Some(role), Some(before), current), expected, "{before:?} {current:?}");
                }
            }
        }
    }

    #[test]
    fn role_changes_follow_the_table() {
        for (caller, before, row) in CHANGES {
            for (after, allowed) in ROLES.into_iter().zip(row) {
                let found = check_change(person(caller), before, after, true);
                let expected = if allowed { "ok" } else { "insufficient_role" };
                assert_eq!(word(&found), expected, "{caller:?} makes {before:?} {after:?}");
                // Without another owner, the results are the same, except that an owner must remain.
                let expected =
                    if allowed && before == Owner && after != Owner { "last_owner" } else { expected };
                let found = check_change(person(caller), before, after, false);
                assert_eq!(word(&found), expected, "{caller:?} makes the last {before:?} {after:?}");
            }
        }
    }

    #[test]
    fn roles_beyond_are_those_not_granted() {
        for (role, expected) in [(Owner, &[] as &[_]), (Admin, &[Owner]), (Member, &ROLES)] {
            assert_eq!(roles_beyond(role).collect::<Vec<_>>(), expected, "{role:?}");
        }
    }

    #[test]
    fn removals_follow_the_table() {
        for role in ROLES {
            for caller in ROLES {
                let expected = if may_grant(caller, role) { "ok" } else { "insufficient_role" };
                assert_eq!(
                    word(&check_removal(Remover::Other(caller), role, true)),
                    expected,
                    "{caller:?} {role:?}"
                );
            }
            assert_eq!(word(&check_removal(Remover::Oneself, role, true)), "ok");
            let expected = if role == Owner { "last_owner" } else { "ok" };
            assert_eq!(word(&check_removal(Remover::Oneself, role, false)), expected);
            assert_eq!(word(&check_removal(Remover::Other(Owner), role, false)), expected);
        }
        assert_eq!(
            word(&check_removal(Remover::Other(Admin), Owner, false)),
            "insufficient_role",
            "403 comes first"
        );
    }

    #[test]
    fn acceptance_depends_on_what_the_sender_may_grant() {
        for offered in ROLES {
            for sender in ROLES {
                let joins = may_grant(sender, offered);
                assert_eq!(check_invitation(person(sender), offered).is_ok(), joins);
                let expected = if joins { "ok" } else { "insufficient_role" };
                assert_eq!(word(&check_withdrawal(sender, offered)), expected);
                let expected = if joins { Acceptance::Join(offered) } else { Acceptance::Withdrawn };
                assert_eq!(
                    decide_acceptance(offered, Some(sender), None),
                    expected,
                    "{sender:?} offered {offered:?}"
                );
                for guest in ROLES {
                    assert_eq!(
                        decide_acceptance(offered, Some(sender), Some(guest)),
                        Acceptance::AlreadyMember
                    );
                }
            }
            assert_eq!(decide_acceptance(offered, None, None), Acceptance::Withdrawn);
        }
    }
}
