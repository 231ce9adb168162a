//! `/v1/organizations/{organization_id}/members` and `…/{member_id}` (section 4.2).

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{HeldMember, MemberScope, OrgScope};
use crate::api::auth::Message;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::error::Error;
use crate::ids::UserId;
use crate::input::{Body, Fields, Nothing, Query, Record};
use crate::reply::{Enveloped, ok};
use crate::roles::OrganizationRole;
use crate::rules::membership::{self, Remover};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::organization_members::Filter;

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

/// GET /v1/organizations/{organization_id}/members
pub async fn list(
    app: App,
    scope: OrgScope,
    Query(query): Query<ListQuery<OrganizationRole>>,
) -> Result<Enveloped<OrganizationMemberPage>, Error> {
    let filter = Filter {
        organization_id: scope.organization_id(),
        search_folded: query.search_folded,
        role: query.filter,
    };
    let mut tx = app.db.read().await?;
    let (total, rows) = store::organization_members::list(&mut tx, &filter, query.page).await?;
    let members = rows.into_iter().map(|row| OrganizationMember {
        id: row.user_id,
        email: row.email,
        username: row.username,
        role: row.role,
        joined_at: row.joined_at,
    });
    Ok(ok(OrganizationMemberPage {
        members: members.collect(),
        total,
        page: query.page.page,
        page_size: query.page.page_size,
    }))
}

/// Another role for a member.
#[derive(Debug)]
pub struct UpdateRole {
    role: Option<OrganizationRole>,
}

impl Record for UpdateRole {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { role: fields.change("role")? })
    }
}

/// A member and the role that they have now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OrganizationMemberRole {
    id: UserId,
    email: String,
    username: String,
    role: OrganizationRole,
    updated_at: Time,
}

/// PUT /v1/organizations/{organization_id}/members/{member_id}. Invitations that a member has sent end with the role
/// that allowed them.
pub async fn update(
    app: App,
    scope: MemberScope,
    Body(body): Body<UpdateRole>,
) -> Result<Enveloped<OrganizationMemberRole>, Error> {
    let now = app.clock.now();
    let (organization_id, member_id) = (scope.organization_id(), scope.member_id());
    let mut tx = app.db.write().await?;
    let (mut held, HeldMember { grantor, row: mut member, has_other_owner }) = scope.hold(&mut tx).await?;
    if let Some(role) = body.role {
        membership::change_role(grantor, member.role, role, has_other_owner)?;
        if role != member.role {
            store::organization_members::set_role(&mut held, organization_id, member_id, role, now).await?;
            for beyond in membership::beyond(role) {
                store::invitations::end_sent(&mut held, organization_id, member_id, beyond, now).await?;
            }
            let event = Event {
                action: Action::MemberRoleChanged,
                target: member_id.to_string(),
                organization_id: Some(organization_id),
            };
            store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
            (member.role, member.updated_at) = (role, now);
        }
    }
    tx.commit().await?;
    Ok(ok(OrganizationMemberRole {
        id: member.user_id,
        email: member.email,
        username: member.username,
        role: member.role,
        updated_at: member.updated_at,
    }))
}

/// DELETE /v1/organizations/{organization_id}/members/{member_id}. With the membership go those in the organization's
/// projects and the open invitations that the member has sent. API keys that they made go on for model calls; they
/// manage nothing any more, because their maker has no role.
pub async fn delete(app: App, scope: MemberScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let now = app.clock.now();
    let (organization_id, member_id) = (scope.organization_id(), scope.member_id());
    let mut tx = app.db.write().await?;
    let (mut held, HeldMember { grantor, row: member, has_other_owner }) = scope.hold(&mut tx).await?;
    let remover = if scope.is_leaving() { Remover::Oneself } else { Remover::Other(grantor.role) };
    membership::remove(remover, member.role, has_other_owner)?;
    store::invitations::end_with_member(&mut held, organization_id, &member, now).await?;
    store::organization_members::remove(&mut held, organization_id, member_id).await?;
    let event = Event {
        action: Action::MemberRemoved,
        target: member_id.to_string(),
        organization_id: Some(organization_id),
    };
    store::audit_log::record(&mut held, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    let message = match remover {
        Remover::Oneself => "You have left the organization.",
        Remover::Other(_) => "The member is removed from the organization.",
    };
    Ok(ok(Message { message: message.to_owned() }))
}
