//! GET and POST /console/organizations/{organization_id}/members/{member_id}/remove

use api::gate::Visit;
use askama::Template;
use kernel::error::Error;
use keys::makers::{self, MadeKeys};
use tenants::access::MemberScope;
use tenants::members::MemberDetail;
use tenants::roles::OrganizationRole;
use tenants::rules::membership::{self, Remover};
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/members/remove.html")]
struct RemovePage {
    shell: Shell,
    detail: MemberDetail,
    keys: MadeKeys,
    is_leaving: bool,
    /// The reason why the member can't be removed.
    refusal: Option<String>,
}

/// Ask whether to remove a member, or whether the user wants to leave.
pub async fn read(console: Console, visit: Visit<MemberScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::members::read(&console.tenants, &visit.scope).await?;
    let is_leaving = visit.scope.is_leaving();
    let remover = if is_leaving { Remover::Oneself } else { Remover::Other(detail.caller) };
    let MemberDetail { member, has_other_owner, .. } = &detail;
    let refusal = membership::check_removal(remover, member.role, *has_other_owner).err();
    Page::new(&RemovePage {
        shell: Shell::read(&console, &visit.person).await?,
        keys: makers::of_member(&console.keys, &visit.scope).await?,
        refusal: refusal.map(|error| error.public_message().to_owned()),
        detail,
        is_leaving,
    })
}

/// Remove a member, or leave.
pub async fn create(console: Console, visit: Visit<MemberScope>, _: NoInput) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    let remover: Remover<OrganizationRole> = tenants::members::delete(&console.tenants, &visit.scope).await?;
    match remover {
        Remover::Oneself => Page::done(&console.link("/organizations"), Done::OrganizationLeft),
        Remover::Other(_) => {
            let members = format!("/organizations/{organization_id}/members");
            Page::done(&console.link(&members), Done::MemberRemoved)
        }
    }
}
