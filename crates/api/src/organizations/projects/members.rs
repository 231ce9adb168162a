//! `/v1/organizations/{organization_id}/projects/{project_id}/members` and `…/{member_id}`
//! (docs/contract/projects.md#members).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::auth::Message;
use crate::members::{MemberPage, MemberRole, Project, UpdateRole, removal_message};
use crate::paging::ListQuery;
use idempotency::Uncommitted;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::record;
use input::types::string;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use tenants::Tenants;
use tenants::access::{ProjectMemberScope, ProjectScope};
use tenants::project_members::New;
use tenants::roles::ProjectRole;
use web::input::{Body, NoInput, Query};
use web::reply::{Enveloped, ok};
use web::route::Operation;

record! {
    /// A new member and their role.
    #[derive(Debug)]
    pub struct AddMember in Api {
        /// The user's id.
        user_id: AnyUserId = required,
        /// The member's role in the project.
        role: ProjectRole = required,
    }
}

impl AddMember {
    /// Returns the values for the operation.
    pub fn into_new(self) -> New {
        New { user_id: self.user_id.0, role: self.role }
    }
}

/// A user's id. A malformed id gets the same response as an unknown id, 404
/// (docs/contract/projects.md#add-a-member).
#[derive(Debug)]
struct AnyUserId(Option<UserId>);

impl Field for AnyUserId {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        string(value, at, problems).map(|text| Self(UserId::parse(&text)))
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "examples": ["user_01kfz3v9xee8tb2m6h0q5w7r4n"]})
    }
}

/// A new member.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AddedProjectMember {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The member's role in the project.
    role: ProjectRole,
    /// The time when the user was added.
    added_at: Time,
}

pub const CREATE: Operation = Operation {
    errors: &[Code::AlreadyMember, Code::KeyExceedsCaller, Code::TooManyAttempts, Code::UserNotFound],
    example: r#"{
  "user_id": "user_01kfz3v9xee8tb2m6h0q5w7r4n",
  "role": "developer"
}"#,
    ..Operation::new("create_project_member")
};

/// Add a member to a project.
pub async fn create(
    tenants: Tenants,
    scope: ProjectScope,
    Body(body): Body<AddMember>,
) -> Result<Uncommitted<Enveloped<AddedProjectMember>>, Error> {
    let added = tenants::project_members::create(&tenants, &scope, body.into_new()).await?;
    Ok(added.map(|member| {
        ok(AddedProjectMember {
            id: member.user_id,
            email: member.email,
            username: member.username,
            role: member.role,
            added_at: member.joined_at,
        })
    }))
}

pub const LIST: Operation = Operation::new("list_project_members");

/// List the members of a project.
///
/// Members of the organization who have access through their organization role aren't listed.
pub async fn list(
    tenants: Tenants,
    scope: ProjectScope,
    Query(query): Query<ListQuery<ProjectRole>>,
) -> Result<Enveloped<MemberPage<Project>>, Error> {
    let page = query.page;
    let listed = tenants::project_members::list(&tenants, &scope, query.into()).await?;
    Ok(ok(MemberPage::new(listed, page)))
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::KeyExceedsCaller],
    example: r#"{
  "role": "viewer"
}"#,
    ..Operation::new("update_project_member")
};

/// Change a member's role in a project.
///
/// A change to the same role doesn't change the time of the last change.
pub async fn update(
    tenants: Tenants,
    scope: ProjectMemberScope,
    Body(body): Body<UpdateRole<ProjectRole>>,
) -> Result<Enveloped<MemberRole<Project>>, Error> {
    Ok(ok(tenants::project_members::update(&tenants, &scope, body.into_change()).await?.into()))
}

pub const DELETE: Operation = Operation::new("delete_project_member");

/// Remove a member from a project.
///
/// Members may also remove themselves.
pub async fn delete(
    tenants: Tenants,
    scope: ProjectMemberScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    let remover = tenants::project_members::delete(&tenants, &scope).await?;
    Ok(ok(removal_message(&remover, "project")))
}
