//! `/console/organizations/{organization_id}/projects/{project_id}/members` and `…/{member_id}`

pub mod new;
pub mod remove;

use api::gate::Visit;
use api::members::UpdateRole;
use api::paging::ListQuery;
use askama::Template;
use kernel::error::Error;
use kernel::ids::UserId;
use tenants::access::{ProjectMemberScope, ProjectScope};
use tenants::project_members::{Member, MemberDetail};
use tenants::roles::{ProjectAction, ProjectRole};
use tenants::rules::membership::RoleChange;
use tenants::rules::project_membership::may_check_grant;
use web::forms::{Filters, ObjectForm};
use web::input::NoInput;

use crate::conflicts;
use crate::console::Console;
use crate::form_view::FormView;
use crate::labels::{self, Choice};
use crate::listing::Listing;
use crate::notices::Done;
use crate::organizations::members::LABELS;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/projects/members/list.html")]
struct ListPage {
    shell: Shell,
    /// The members, each with `true` if the user may change their role and remove them.
    members: Vec<(Member, bool)>,
    listing: Listing,
    search: String,
    role: String,
    me: UserId,
    may_add: bool,
}

/// List the members of a project.
pub async fn list(
    console: Console,
    visit: Visit<ProjectScope>,
    query: Filters<ListQuery<ProjectRole>>,
) -> Result<Page, Error> {
    let [search, role] = ["search", "role"].map(|name| query.sent(name).to_owned());
    let page = query.fields.page;
    let listed = tenants::project_members::list(&console.tenants, &visit.scope, query.fields.into()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let caller = shell.project.as_ref().map(|project| project.role);
    let caller = caller.filter(|role| role.allows(ProjectAction::ManageMembers));
    let manages = |member: &Member| caller.is_some_and(|caller| may_check_grant(caller, member.role));
    Page::new(&ListPage {
        listing: Listing::new(page, listed.total, &query.sent),
        members: listed.rows.into_iter().map(|row| (row.clone(), manages(&row))).collect(),
        search,
        role,
        me: visit.scope.user_id(),
        may_add: caller.is_some(),
        shell,
    })
}

#[derive(Template)]
#[template(path = "organizations/projects/members/member.html")]
struct MemberPage {
    shell: Shell,
    form: FormView,
    detail: MemberDetail,
    /// The roles that the user may grant; empty if the user may not change this member.
    roles: Vec<Choice>,
}

/// Show a member, with the form that changes the role.
pub async fn read(console: Console, visit: Visit<ProjectMemberScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::project_members::read(&console.tenants, &visit.scope).await?;
    let form = form(&detail)?;
    show(&console, &visit, detail, form).await
}

/// Change a member's role.
pub async fn update(
    console: Console,
    visit: Visit<ProjectMemberScope>,
    mut form: ObjectForm<UpdateRole<ProjectRole>>,
) -> Result<Page, Error> {
    let detail = tenants::project_members::read(&console.tenants, &visit.scope).await?;
    let members = list_link(&console, visit.scope.project());
    let back = format!("{members}/{}", visit.scope.member_id());
    let current = self::form(&detail)?;
    if let Some(conflict) = conflicts::check(&console, &visit.person, &form, &current, &back).await? {
        return Ok(conflict);
    }
    let changed = match form.take() {
        Ok(body) => {
            let change = RoleChange { before: Some(detail.member.role), ..body.into_change() };
            tenants::project_members::update(&console.tenants, &visit.scope, change).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&members, Done::RoleChanged),
        Err(error) => show(&console, &visit, detail, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Returns the link to the members of a project.
pub(crate) fn list_link(console: &Console, scope: &ProjectScope) -> String {
    let (organization_id, project_id) = (scope.organization_id(), scope.project_id());
    console.link(&format!("/organizations/{organization_id}/projects/{project_id}/members"))
}

fn form(detail: &MemberDetail) -> Result<FormView, Error> {
    FormView::new(LABELS).with("role", detail.member.role.as_str()).versioned()
}

async fn show(
    console: &Console,
    visit: &Visit<ProjectMemberScope>,
    detail: MemberDetail,
    form: FormView,
) -> Result<Page, Error> {
    let roles = match may_check_grant(detail.caller, detail.member.role) {
        true => labels::grantable_in_project(detail.caller),
        false => Vec::new(),
    };
    let page = MemberPage { shell: Shell::read(console, &visit.person).await?, roles, detail, form };
    Page::with_form(&page.form, &page)
}
