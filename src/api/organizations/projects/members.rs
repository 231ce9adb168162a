//! `/v1/organizations/{organization_id}/projects/{project_id}/members` and `…/{member_id}` (section 4.3).

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{HeldTx, ProjectMemberScope, ProjectScope};
use crate::api::auth::Message;
use crate::api::paging::ListQuery;
use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::UserId;
use crate::input::fields::{At, Field, Problems};
use crate::input::json::Json;
use crate::input::types::string;
use crate::input::{Body, Fields, Nothing, Query, Record};
use crate::mail::posting::Draft;
use crate::reply::{Enveloped, ok};
use crate::roles::ProjectRole;
use crate::rules::project_membership::{self, Remover};
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::mail_counters::Sender;
use crate::store::outbox::{About, Template};
use crate::store::project_members::Filter;
use crate::store::users::User;

use super::about;

/// Somebody for the project.
#[derive(Debug)]
pub struct AddMember {
    user_id: AnyUserId,
    role: ProjectRole,
}

impl Record for AddMember {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let user_id = fields.required("user_id");
        let role = fields.required("role");
        Some(Self { user_id: user_id?, role: role? })
    }
}

/// A user's id. A text that can't be one is nobody's: 404 like any id of nobody (decisions, section 8).
#[derive(Debug)]
struct AnyUserId(Option<UserId>);

impl Field for AnyUserId {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        string(value, at, problems).map(|text| Self(UserId::parse(&text)))
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "examples": ["user_01kfz3v9xee8tb2m6h0q5w7r4n"]})
    }
}

/// A member right after they were added.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AddedProjectMember {
    id: UserId,
    email: String,
    username: String,
    role: ProjectRole,
    added_at: Time,
}

/// POST …/members. Who does not belong to the organization yet is brought in, by somebody who manages its members. They are
/// told by mail, unless they did it themselves.
pub async fn create(
    app: App,
    scope: ProjectScope,
    Body(body): Body<AddMember>,
) -> Result<Enveloped<AddedProjectMember>, Error> {
    let (project_id, role, now) = (scope.project_id(), body.role, app.clock.now());
    let mut tx = app.db.write().await?;
    let (mut held, caller) = scope.hold(&mut tx).await?;
    let user = match body.user_id.0 {
        Some(user_id) => store::users::by_id(&mut held, user_id).await?,
        None => None,
    };
    let user = user.ok_or(Error::new(Code::UserNotFound).param("user_id"))?;
    let standing = store::organization_members::role(&mut held, scope.organization_id(), user.id).await?;
    let is_newcomer = standing.flatten().is_none();
    project_membership::add(caller.grantor, caller.organization_role, role, is_newcomer)?;
    if is_newcomer {
        bring_in(&app, &mut held, &scope, &user, now).await?;
    }
    if !store::project_members::add(&mut held, project_id, user.id, role, now).await? {
        return Err(Error::new(Code::AlreadyMember).param("user_id"));
    }
    record(&app, &mut held, &scope, Action::ProjectMemberAdded, target(&scope, user.id), now).await?;
    if user.id != scope.user_id() {
        let by = store::users::by_id(&mut held, scope.user_id()).await?.ok_or(Code::InsufficientRole)?;
        let about = About { role: Some(role.as_str().to_owned()), ..about(&caller.found, by.username) };
        let sender = Sender::person(scope.trail(), scope.user_id());
        let draft = Draft { template: Template::AddedToProject, about };
        app.outbox.post(&mut held, &sender, &draft, &user.email, now).await?;
    }
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(ok(AddedProjectMember {
        id: user.id,
        email: user.email,
        username: user.username,
        role,
        added_at: now,
    }))
}

/// Makes somebody a member of the organization, as its settings say.
async fn bring_in(
    app: &App,
    tx: &mut HeldTx<'_>,
    scope: &ProjectScope,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    let organization_id = scope.organization_id();
    let organization =
        store::organizations::detail(tx, organization_id).await?.ok_or(Code::OrganizationNotFound)?;
    let role = organization.organization.default_role;
    store::organization_members::insert(tx, organization_id, user.id, role, now).await?;
    record(app, tx, scope, Action::MemberAdded, user.id.to_string(), now).await
}

async fn record(
    app: &App,
    tx: &mut Tx,
    scope: &ProjectScope,
    action: Action,
    target: String,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action, target, organization_id: Some(scope.organization_id()) };
    Ok(store::audit_log::record(tx, scope.trail(), &event, now, &app.random).await?)
}

/// One page of members.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectMemberPage {
    members: Vec<ProjectMember>,
    total: i64,
    page: i64,
    page_size: i64,
}

/// A member in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectMember {
    id: UserId,
    email: String,
    username: String,
    /// The role in the project alone, whatever the organization adds to it.
    role: ProjectRole,
    joined_at: Time,
}

/// GET …/members: the project's own, not those who may act in it by their role in the organization.
pub async fn list(
    app: App,
    scope: ProjectScope,
    Query(query): Query<ListQuery<ProjectRole>>,
) -> Result<Enveloped<ProjectMemberPage>, Error> {
    let filter =
        Filter { project_id: scope.project_id(), search_folded: query.search_folded, role: query.filter };
    let mut tx = app.db.read().await?;
    let (total, rows) = store::project_members::list(&mut tx, &filter, query.page).await?;
    let members = rows.into_iter().map(|row| ProjectMember {
        id: row.user_id,
        email: row.email,
        username: row.username,
        role: row.role,
        joined_at: row.added_at,
    });
    Ok(ok(ProjectMemberPage {
        members: members.collect(),
        total,
        page: query.page.page,
        page_size: query.page.page_size,
    }))
}

/// Another role for a member.
#[derive(Debug)]
pub struct UpdateRole {
    role: Option<ProjectRole>,
}

impl Record for UpdateRole {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { role: fields.change("role")? })
    }
}

/// A member and the role that they have now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProjectMemberRole {
    id: UserId,
    email: String,
    username: String,
    role: ProjectRole,
    updated_at: Time,
}

/// PUT …/members/{member_id}. What changes nothing leaves `updated_at` as it was.
pub async fn update(
    app: App,
    scope: ProjectMemberScope,
    Body(body): Body<UpdateRole>,
) -> Result<Enveloped<ProjectMemberRole>, Error> {
    let now = app.clock.now();
    let (project_id, member_id) = (scope.project_id(), scope.member_id());
    let mut tx = app.db.write().await?;
    let (mut held, caller, mut member) = scope.hold(&mut tx).await?;
    if let Some(role) = body.role {
        project_membership::change_role(caller, member.role, role)?;
        if role != member.role {
            store::project_members::set_role(&mut held, project_id, member_id, role, now).await?;
            let (project, action) = (scope.project(), Action::ProjectMemberRoleChanged);
            record(&app, &mut held, project, action, target(project, member_id), now).await?;
            (member.role, member.updated_at) = (role, now);
        }
    }
    tx.commit().await?;
    Ok(ok(ProjectMemberRole {
        id: member.user_id,
        email: member.email,
        username: member.username,
        role: member.role,
        updated_at: member.updated_at,
    }))
}

/// DELETE …/members/{member_id}. API keys that the member made stay; they manage what their maker still may.
pub async fn delete(app: App, scope: ProjectMemberScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let now = app.clock.now();
    let (project_id, member_id) = (scope.project_id(), scope.member_id());
    let mut tx = app.db.write().await?;
    let (mut held, caller, member) = scope.hold(&mut tx).await?;
    let remover = if scope.is_leaving() { Remover::Oneself } else { Remover::Other(caller.role) };
    project_membership::remove(remover, member.role)?;
    store::project_members::remove(&mut held, project_id, member_id).await?;
    let (project, action) = (scope.project(), Action::ProjectMemberRemoved);
    record(&app, &mut held, project, action, target(project, member_id), now).await?;
    tx.commit().await?;
    let message = match remover {
        Remover::Oneself => "You have left the project.",
        Remover::Other(_) => "The member is removed from the project.",
    };
    Ok(ok(Message { message: message.to_owned() }))
}

/// What an entry of the audit trail is about: a membership has no id of its own, and a user alone would not say where.
fn target(scope: &ProjectScope, user_id: UserId) -> String {
    format!("{}/{user_id}", scope.project_id())
}
