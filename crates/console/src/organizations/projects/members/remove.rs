//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/members/{member_id}/remove

use api::gate::Visit;
use askama::Template;
use kernel::error::Error;
use keys::makers::{self, MadeKeys};
use tenants::access::ProjectMemberScope;
use tenants::project_members::MemberDetail;
use tenants::rules::membership::Remover;
use tenants::rules::project_membership;
use web::input::NoInput;

use super::list_link;
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/members/remove.html")]
struct RemovePage {
    shell: Shell,
    detail: MemberDetail,
    keys: MadeKeys,
    is_leaving: bool,
    /// The reason why the member can't be removed.
    refusal: Option<String>,
}

/// Ask whether to remove a member, or whether the user wants to leave.
pub async fn read(console: Console, visit: Visit<ProjectMemberScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::project_members::read(&console.tenants, &visit.scope).await?;
    let is_leaving = visit.scope.is_leaving();
    let remover = if is_leaving { Remover::Oneself } else { Remover::Other(detail.caller) };
    let refusal = project_membership::check_removal(remover, detail.member.role).err();
    Page::new(&RemovePage {
        shell: Shell::read(&console, &visit.person).await?,
        keys: makers::of_project_member(&console.keys, &visit.scope).await?,
        refusal: refusal.map(|error| error.public_message().to_owned()),
        detail,
        is_leaving,
    })
}

/// Remove a member, or leave.
pub async fn create(console: Console, visit: Visit<ProjectMemberScope>, _: NoInput) -> Result<Page, Error> {
    match tenants::project_members::delete(&console.tenants, &visit.scope).await? {
        Remover::Oneself => {
            // If the project is private, the user may no longer see it.
            let path = format!("/organizations/{}", visit.scope.project().organization_id());
            Page::done(&console.link(&path), Done::ProjectLeft)
        }
        Remover::Other(_) => Page::done(&list_link(&console, visit.scope.project()), Done::MemberRemoved),
    }
}
