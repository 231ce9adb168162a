//! `/v1/organizations/{organization_id}/members` and `…/{member_id}`
//! (docs/contract/organizations.md#members).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::auth::Message;
use crate::paging::ListQuery;
use input::fields::{Fields, Record};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::UserId;
use tenants::Tenants;
use tenants::access::{MemberScope, OrgScope};
use tenants::roles::OrganizationRole;
use tenants::rules::membership::Remover;
use web::input::{Body, NoInput, Query};
use web::reply::{Enveloped, ok};

/// One page of members.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationMemberPage {
    members: Vec<OrganizationMember>,
    total: i64,
    page: i64,
    page_size: i64,
}

/// A member in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationMember {
    id: UserId,
    email: String,
    username: String,
    role: OrganizationRole,
    joined_at: Time,
}

/// List the members of an organization.
pub async fn list(
    tenants: Tenants,
    scope: OrgScope,
    Query(query): Query<ListQuery<OrganizationRole>>,
) -> Result<Enveloped<OrganizationMemberPage>, Error> {
    let page = query.page;
    let listed = tenants::members::list(&tenants, &scope, query.into()).await?;
    let members = listed.rows.into_iter().map(|row| OrganizationMember {
        id: row.user_id,
        email: row.email,
        username: row.username,
        role: row.role,
        joined_at: row.joined_at,
    });
    Ok(ok(OrganizationMemberPage {
        members: members.collect(),
        total: listed.total,
        page: page.page,
        page_size: page.page_size,
    }))
}

/// A new role for a member.
#[derive(Debug)]
pub struct UpdateRole {
    role: Option<OrganizationRole>,
}

impl Record<Api> for UpdateRole {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        Some(Self { role: fields.change("role")? })
    }
}

/// A member and their new role.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationMemberRole {
    id: UserId,
    email: String,
    username: String,
    role: OrganizationRole,
    updated_at: Time,
}

/// Change a member's role in an organization.
pub async fn update(
    tenants: Tenants,
    scope: MemberScope,
    Body(body): Body<UpdateRole>,
) -> Result<Enveloped<OrganizationMemberRole>, Error> {
    let member = tenants::members::update(&tenants, &scope, body.role).await?;
    Ok(ok(OrganizationMemberRole {
        id: member.user_id,
        email: member.email,
        username: member.username,
        role: member.role,
        updated_at: member.updated_at,
    }))
}

/// Remove a member from an organization.
///
/// Members may leave by themselves.
pub async fn delete(tenants: Tenants, scope: MemberScope, _: NoInput) -> Result<Enveloped<Message>, Error> {
    let message = match tenants::members::delete(&tenants, &scope).await? {
        Remover::Oneself => "You have left the organization.",
        Remover::Other(_) => "The member is removed from the organization.",
    };
    Ok(ok(Message { message: message.to_owned() }))
}
