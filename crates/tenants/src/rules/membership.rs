//! Who may make whom what in an organization (docs/contract/access.md#granting-roles).
//!
//! The gate has found out whether a caller manages members at all. What is left depends on whose role it is and what it
//! becomes: one table says which roles a role gives out, and the functions below read it.

use crate::roles::OrganizationRole;
use kernel::error::{Code, Error};

const YES: bool = true;
const NO: bool = false;

/// Whether somebody with this role may give another one to somebody, or take it away: what one can't make, one can't
/// unmake either.
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

/// A caller that gives a role to somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grantor<R> {
    /// Their role.
    pub role: R,
    /// Whether they call by an API key: a key makes no owners, whoever made it.
    pub is_key: bool,
}

/// The refusal of an API key that would make an owner.
pub fn key_makes_owner() -> Error {
    Error::new(Code::KeyExceedsCaller)
        .param("role")
        .message("An API key can't give anybody the role `owner`: use an access token.")
}

/// The roles that somebody with this one may not give: invitations to them end when their sender becomes this.
pub fn beyond(role: OrganizationRole) -> impl Iterator<Item = OrganizationRole> {
    let all = [OrganizationRole::Owner, OrganizationRole::Admin, OrganizationRole::Member];
    all.into_iter().filter(move |other| !may_grant(role, *other))
}

/// Whether a member's role may become another one. `has_other_owner`: whether somebody else is an owner too.
///
/// # Errors
/// 403 when the caller may not touch the old role or give the new one; 409 when nobody would be left to own the
/// organization.
pub fn change_role(
    caller: Grantor<OrganizationRole>,
    before: OrganizationRole,
    after: OrganizationRole,
    has_other_owner: bool,
) -> Result<(), Error> {
    if !may_grant(caller.role, before) {
        return Err(Code::InsufficientRole.into());
    }
    if before != after {
        grant(caller, after)?;
    }
    let keeps_owner = after == OrganizationRole::Owner || has_other_owner;
    if before == OrganizationRole::Owner && !keeps_owner {
        return Err(Code::LastOwner.into());
    }
    Ok(())
}

/// The person who takes a member out of an organization or a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remover<R> {
    /// The member, who leaves.
    Oneself,
    /// Another person, with this role.
    Other(R),
}

/// Whether a member may go. Everybody may leave but the last owner.
///
/// # Errors
/// As for [`change_role`].
pub fn remove(
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

/// Whether somebody may be invited to this role.
///
/// # Errors
/// 403: one invites to what one may grant.
pub fn invite(caller: Grantor<OrganizationRole>, role: OrganizationRole) -> Result<(), Error> {
    grant(caller, role)
}

fn grant(caller: Grantor<OrganizationRole>, role: OrganizationRole) -> Result<(), Error> {
    if !may_grant(caller.role, role) {
        return Err(Code::InsufficientRole.into());
    }
    if caller.is_key && role == OrganizationRole::Owner { Err(key_makes_owner()) } else { Ok(()) }
}

/// What becomes of an invitation that somebody takes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// They become a member with this role.
    Join(OrganizationRole),
    /// They are one already, and keep the role that they have.
    AlreadyMember,
    /// Whoever sent it could not give this role any more: nobody would have given it.
    Withdrawn,
}

/// Decides about an open invitation: the role that it offers, the sender's role now, and the guest's if there is one.
pub fn accept(
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

    /// Every caller, old role and new role, when there is another owner.
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
    fn a_key_gives_every_role_of_its_person_but_owner() {
        use OrganizationRole::{Admin, Member, Owner};
        let by_key = |role| Grantor { role, is_key: true };
        let code = |result: Result<(), Error>| result.map_err(|error| error.code);
        assert_eq!(code(invite(by_key(Owner), Admin)), Ok(()));
        assert_eq!(code(invite(by_key(Owner), Owner)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(invite(by_key(Admin), Owner)), Err(Code::InsufficientRole));
        assert_eq!(code(change_role(by_key(Owner), Member, Admin, true)), Ok(()));
        assert_eq!(code(change_role(by_key(Owner), Admin, Owner, true)), Err(Code::KeyExceedsCaller));
        assert_eq!(code(change_role(by_key(Owner), Owner, Owner, true)), Ok(()));
        assert_eq!(code(change_role(by_key(Owner), Owner, Admin, true)), Ok(()));
    }

    #[test]
    fn who_may_give_which_role_to_whom() {
        for (caller, before, row) in CHANGES {
            for (after, allowed) in ROLES.into_iter().zip(row) {
                let found = change_role(person(caller), before, after, true);
                let due = if allowed { "ok" } else { "insufficient_role" };
                assert_eq!(word(&found), due, "{caller:?} makes {before:?} {after:?}");
                // Without another owner the same, but that an owner stays one.
                let due = if allowed && before == Owner && after != Owner { "last_owner" } else { due };
                let found = change_role(person(caller), before, after, false);
                assert_eq!(word(&found), due, "{caller:?} makes the last {before:?} {after:?}");
            }
        }
    }

    #[test]
    fn what_one_may_not_give_is_beyond_one() {
        for (role, due) in [(Owner, &[] as &[_]), (Admin, &[Owner]), (Member, &ROLES)] {
            assert_eq!(beyond(role).collect::<Vec<_>>(), due, "{role:?}");
        }
    }

    #[test]
    fn who_may_remove_whom() {
        for role in ROLES {
            for caller in ROLES {
                let due = if may_grant(caller, role) { "ok" } else { "insufficient_role" };
                assert_eq!(word(&remove(Remover::Other(caller), role, true)), due, "{caller:?} {role:?}");
            }
            assert_eq!(word(&remove(Remover::Oneself, role, true)), "ok");
            let due = if role == Owner { "last_owner" } else { "ok" };
            assert_eq!(word(&remove(Remover::Oneself, role, false)), due);
            assert_eq!(word(&remove(Remover::Other(Owner), role, false)), due);
        }
        assert_eq!(
            word(&remove(Remover::Other(Admin), Owner, false)),
            "insufficient_role",
            "403 comes first"
        );
    }

    #[test]
    fn an_invitation_is_worth_what_its_sender_may_give() {
        for offered in ROLES {
            for sender in ROLES {
                let joins = may_grant(sender, offered);
                assert_eq!(invite(person(sender), offered).is_ok(), joins);
                let due = if joins { Acceptance::Join(offered) } else { Acceptance::Withdrawn };
                assert_eq!(accept(offered, Some(sender), None), due, "{sender:?} offered {offered:?}");
                for guest in ROLES {
                    assert_eq!(accept(offered, Some(sender), Some(guest)), Acceptance::AlreadyMember);
                }
            }
            assert_eq!(accept(offered, None, None), Acceptance::Withdrawn);
        }
    }
}
