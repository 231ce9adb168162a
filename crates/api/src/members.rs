//! Requests and replies about members, shared by organizations and projects.

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::auth::Message;
use crate::paging::PageInfo;
use input::fields::{Field, Fields, Record};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, ProjectId, UserId};
use kernel::page::Page;
use tenants::ListPage;
use tenants::members;
use tenants::roles::{OrganizationRole, ProjectRole};
use tenants::rules::membership::{Remover, RoleChange};

/// A kind of group that has members. The schema names of [`Member`], [`MemberPage`] and [`MemberRole`] begin
/// with its schema name.
pub trait Group: JsonSchema {
    /// The id of a group.
    type Id: members::Group<Role = Self::Role>;
    /// The roles of its members.
    type Role: std::fmt::Debug + Serialize + JsonSchema;
}

/// Organizations, as groups of members.
#[derive(Debug, JsonSchema)]
pub struct Organization;

impl Group for Organization {
    type Id = OrganizationId;
    type Role = OrganizationRole;
}

/// Projects, as groups of members.
#[derive(Debug, JsonSchema)]
pub struct Project;

impl Group for Project {
    type Id = ProjectId;
    type Role = ProjectRole;
}

/// A member in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{G}Member")]
pub struct Member<G: Group> {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The member's role.
    role: G::Role,
    /// The time when the user became a member.
    joined_at: Time,
}

/// A page of members.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{G}MemberPage")]
#[serde(bound = "")]
pub struct MemberPage<G: Group> {
    /// The members of this page.
    members: Vec<Member<G>>,
    #[serde(flatten)]
    page: PageInfo,
}

impl<G: Group> MemberPage<G> {
    pub(crate) fn new(listed: ListPage<members::Member<G::Id>>, page: Page) -> Self {
        let members = listed.rows.into_iter().map(|row| Member {
            id: row.user_id,
            email: row.email,
            username: row.username,
            role: row.role,
            joined_at: row.joined_at,
        });
        Self { members: members.collect(), page: PageInfo::new(listed.total, page) }
    }
}

/// A new role for a member.
#[derive(Debug)]
pub struct UpdateRole<R> {
    role: Option<R>,
}

impl<R> UpdateRole<R> {
    /// Returns the change for the operation, regardless of the previous role.
    pub fn into_change(self) -> RoleChange<R> {
        RoleChange { role: self.role, before: None }
    }
}

impl<R: Field + Send + 'static> Record<Api> for UpdateRole<R> {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        Some(Self { role: fields.described("The role.").change("role")? })
    }
}

/// A member and their new role.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{G}MemberRole")]
pub struct MemberRole<G: Group> {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The member's role.
    role: G::Role,
    /// The time of the last change.
    updated_at: Time,
}

impl<G: Group> From<members::Member<G::Id>> for MemberRole<G> {
    fn from(member: members::Member<G::Id>) -> Self {
        Self {
            id: member.user_id,
            email: member.email,
            username: member.username,
            role: member.role,
            updated_at: member.updated_at,
        }
    }
}

/// Returns the reply to a removal. `group` is the word for the kind of group.
pub(crate) fn removal_message<R>(remover: &Remover<R>, group: &str) -> Message {
    let message = match remover {
        Remover::Oneself => format!("You have left the {group}."),
        Remover::Other(_) => format!("The member is removed from the {group}."),
    };
    Message { message }
}
