//! The rule for the effect of a sign-on on a membership. The rule is pure.
//!
//! Only memberships that sign-ons with the same provider created are changed. If a provider doesn't report
//! groups, the groups are unknown, not empty.

use crate::roles::OrganizationRole;
use sign_on::settings::{Membership, Role};

impl From<Role> for OrganizationRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Member => Self::Member,
            Role::Admin => Self::Admin,
            Role::Owner => Self::Owner,
        }
    }
}

/// A user's current membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Current {
    pub role: OrganizationRole,
    /// `true` if a sign-on with the provider created it.
    pub is_managed: bool,
    /// `true` if the organization has an owner other than this user.
    pub has_other_owner: bool,
}

/// The change of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Nothing,
    Join(OrganizationRole),
    SetRole(OrganizationRole),
    Remove,
    /// No change, because the organization would be left without an owner.
    LastOwnerStays,
}

/// Decides how a sign-on changes a membership. `groups` is `None` if the provider doesn't report any.
pub fn decide(settings: &Membership, groups: Option<&[String]>, current: Option<Current>) -> Outcome {
    if current.is_some_and(|current| !current.is_managed) {
        return Outcome::Nothing;
    }
    let has_groups = settings.groups_claim.is_some();
    let mapped = groups.unwrap_or_default().iter().filter_map(|group| settings.roles.get(group)).max();
    let wanted = match mapped {
        Some(role) if has_groups => Some(*role),
        _ if settings.is_exclusive => None,
        _ => Some(settings.default_role),
    };
    match (current, wanted.map(OrganizationRole::from)) {
        (None, None) => Outcome::Nothing,
        (None, Some(role)) => Outcome::Join(role),
        // Without groups, the membership isn't changed.
        (Some(_), _) if !has_groups || groups.is_none() => Outcome::Nothing,
        (Some(current), Some(role)) if role == current.role => Outcome::Nothing,
        (Some(current), _) if current.role == OrganizationRole::Owner && !current.has_other_owner => {
            Outcome::LastOwnerStays
        }
        (Some(_), Some(role)) => Outcome::SetRole(role),
        (Some(_), None) => Outcome::Remove,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use kernel::ids::OrganizationId;

    /// Each row has these columns: the groups, and the outcome for a non-member, a managed member, a managed
    /// admin, the last owner (managed), a managed owner with another owner, and an admin whose role isn't
    /// managed. The settings map `staff` to member, `admins` to admin and `boss` to owner.
    const DEFAULT_ROLE: &str = "
        absent        join:member  nothing       nothing        nothing      nothing         nothing
        empty         join:member  nothing       set:member     last_owner   set:member      nothing
        other         join:member  nothing       set:member     last_owner   set:member      nothing
        staff         join:member  nothing       set:member     last_owner   set:member      nothing
        admins        join:admin   set:admin     nothing        last_owner   set:admin       nothing
        staff,admins  join:admin   set:admin     nothing        last_owner   set:admin       nothing
        boss,staff    join:owner   set:owner     set:owner      nothing      nothing         nothing
    ";
    const EXCLUSIVE: &str = "
        absent        nothing      nothing       nothing        nothing      nothing         nothing
        empty         nothing      remove        remove         last_owner   remove          nothing
        other         nothing      remove        remove         last_owner   remove          nothing
        staff         join:member  nothing       set:member     last_owner   set:member      nothing
        admins        join:admin   set:admin     nothing        last_owner   set:admin       nothing
        staff,admins  join:admin   set:admin     nothing        last_owner   set:admin       nothing
        boss,staff    join:owner   set:owner     set:owner      nothing      nothing         nothing
    ";
    /// The outcomes without a `groups_claim`.
    const NO_CLAIM: &str = "
        absent        join:member  nothing       nothing        nothing      nothing         nothing
        admins        join:member  nothing       nothing        nothing      nothing         nothing
    ";

    fn settings(is_exclusive: bool, has_claim: bool) -> Membership {
        let roles = [("staff", Role::Member), ("admins", Role::Admin), ("boss", Role::Owner)];
        Membership {
            organization_id: OrganizationId::parse("org_01hzzzzzzzzzzzzzzzzzzzzzzz").unwrap(),
            default_role: Role::Member,
            groups_claim: has_claim.then(|| "groups".to_owned()),
            roles: roles
                .map(|(group, role)| (group.to_owned(), role))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
            is_exclusive,
        }
    }

    fn word(outcome: Outcome) -> String {
        match outcome {
            Outcome::Nothing => "nothing".to_owned(),
            Outcome::Join(role) => format!("join:{}", role.as_str()),
            Outcome::SetRole(role) => format!("set:{}", role.as_str()),
            Outcome::Remove => "remove".to_owned(),
            Outcome::LastOwnerStays => "last_owner".to_owned(),
        }
    }

    #[test]
    fn table_of_groups() {
        use OrganizationRole::{Admin, Member, Owner};
        let managed = |role, has_other_owner| Some(Current { role, is_managed: true, has_other_owner });
        let by_hand = Some(Current { role: Admin, is_managed: false, has_other_owner: true });
        let members = [
            None,
            managed(Member, true),
            managed(Admin, true),
            managed(Owner, false),
            managed(Owner, true),
            by_hand,
        ];
        let tables = [
            (DEFAULT_ROLE, settings(false, true)),
            (EXCLUSIVE, settings(true, true)),
            (NO_CLAIM, settings(false, false)),
        ];
        for (table, settings) in tables {
            for row in table.trim().lines() {
                let words: Vec<_> = row.split_whitespace().collect();
                let [claim, expected @ ..] = words.as_slice() else { panic!("{row}") };
                let groups: Option<Vec<String>> = match *claim {
                    "absent" => None,
                    "empty" => Some(Vec::new()),
                    names => Some(names.split(',').map(str::to_owned).collect()),
                };
                assert_eq!(expected.len(), members.len(), "{row}");
                for (expected, current) in expected.iter().zip(members) {
                    let outcome = decide(&settings, groups.as_deref(), current);
                    assert_eq!(word(outcome), *expected, "{row}: {current:?}");
                }
            }
        }
    }
}
