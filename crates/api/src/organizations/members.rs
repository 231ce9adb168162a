//! `/v1/organizations/{organization_id}/members` and `…/{member_id}`
//! (docs/contract/organizations.md#members).

use crate::auth::Message;
use crate::members::{MemberPage, MemberRole, Organization, UpdateRole, removal_message};
use crate::paging::ListQuery;
use kernel::error::{Code, Error};
use tenants::Tenants;
use tenants::access::{MemberScope, OrgScope};
use tenants::roles::OrganizationRole;
use web::input::{Body, NoInput, Query};
use web::reply::{Enveloped, ok};
use web::route::Operation;

pub const LIST: Operation = Operation::new("list_organization_members");

/// List the members of an organization.
pub async fn list(
    tenants: Tenants,
    scope: OrgScope,
    Query(query): Query<ListQuery<OrganizationRole>>,
) -> Result<Enveloped<MemberPage<Organization>>, Error> {
    let page = query.page;
    let listed = tenants::members::list(&tenants, &scope, query.into()).await?;
    Ok(ok(MemberPage::new(listed, page)))
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::KeyExceedsCaller, Code::LastOwner, Code::ReauthenticationRequired],
    example: r#"{
  "role": "admin"
}"#,
    ..Operation::new("update_organization_member")
};

/// Change a member's role in an organization.
pub async fn update(
    tenants: Tenants,
    scope: MemberScope,
    Body(body): Body<UpdateRole<OrganizationRole>>,
) -> Result<Enveloped<MemberRole<Organization>>, Error> {
    Ok(ok(tenants::members::update(&tenants, &scope, body.into_change()).await?.into()))
}

pub const DELETE: Operation = Operation {
    errors: &[Code::LastOwner, Code::ReauthenticationRequired],
    ..Operation::new("delete_organization_member")
};

/// Remove a member from an organization.
///
/// Members may also remove themselves.
pub async fn delete(tenants: Tenants, scope: MemberScope, _: NoInput) -> Result<Enveloped<Message>, Error> {
    let remover = tenants::members::delete(&tenants, &scope).await?;
    Ok(ok(removal_message(&remover, "organization")))
}
