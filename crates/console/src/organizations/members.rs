//! `/console/organizations/{organization_id}/members` and `…/{member_id}`

pub mod invitations;
pub mod invite;
pub mod remove;

use api::gate::Visit;
use api::members::UpdateRole;
use api::paging::ListQuery;
use askama::Template;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};
use keys::makers::{self, MadeKeys};
use tenants::access::{MemberScope, OrgScope};
use tenants::members::{Member, MemberDetail};
use tenants::roles::{OrganizationAction, OrganizationRole};
use tenants::rules::membership::{RoleChange, may_grant};
use web::forms::{Filters, ObjectForm};
use web::input::NoInput;

use crate::conflicts;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::labels::{self, Choice};
use crate::listing::Listing;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

/// The labels of a form with a role.
pub const LABELS: Labels = &[("role", "Role")];

#[derive(Template)]
#[template(path = "organizations/members/list.html")]
struct ListPage {
    shell: Shell,
    /// The members, each with `true` if the user may change their role and remove them.
    members: Vec<(Member<OrganizationId>, bool)>,
    listing: Listing,
    search: String,
    role: String,
    me: UserId,
    may_invite: bool,
}

/// List the members of an organization.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<ListQuery<OrganizationRole>>,
) -> Result<Page, Error> {
    let [search, role] = ["search", "role"].map(|name| query.sent(name).to_owned());
    let page = query.fields.page;
    let listed = tenants::members::list(&console.tenants, &visit.scope, query.fields.into()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let caller = visit.scope.role();
    let manages = |member: &Member<_>| {
        caller.allows(OrganizationAction::ManageMembers) && may_grant(caller, member.role)
    };
    Page::new(&ListPage {
        listing: Listing::new(page, listed.total, &query.sent),
        members: listed.rows.into_iter().map(|row| (row.clone(), manages(&row))).collect(),
        search,
        role,
        me: visit.scope.user_id(),
        may_invite: shell.may(OrganizationAction::InviteMembers),
        shell,
    })
}

#[derive(Template)]
#[template(path = "organizations/members/member.html")]
struct MemberPage {
    shell: Shell,
    form: FormView,
    detail: MemberDetail,
    keys: MadeKeys,
    /// The roles that the user may grant; empty if the user may not change this member.
    roles: Vec<Choice>,
    /// `true` if the member is the signed-in user.
    is_me: bool,
}

/// Show a member, with the form that changes the role.
pub async fn read(console: Console, visit: Visit<MemberScope>, _: NoInput) -> Result<Page, Error> {
    let detail = tenants::members::read(&console.tenants, &visit.scope).await?;
    let form = form(&detail)?;
    show(&console, &visit, detail, form).await
}

/// Change a member's role.
pub async fn update(
    console: Console,
    visit: Visit<MemberScope>,
    mut form: ObjectForm<UpdateRole<OrganizationRole>>,
) -> Result<Page, Error> {
    let detail = tenants::members::read(&console.tenants, &visit.scope).await?;
    let members = console.link(&format!("/organizations/{}/members", visit.scope.organization_id()));
    let back = format!("{members}/{}", visit.scope.member_id());
    let current = self::form(&detail)?;
    if let Some(conflict) = conflicts::check(&console, &visit.person, &form, &current, &back).await? {
        return Ok(conflict);
    }
    let changed = match form.take() {
        Ok(body) => {
            let change = RoleChange { before: Some(detail.member.role), ..body.into_change() };
            tenants::members::update(&console.tenants, &visit.scope, change).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&members, Done::RoleChanged),
        Err(error) => show(&console, &visit, detail, FormView::refused(LABELS, &form, error)?).await,
    }
}

fn form(detail: &MemberDetail) -> Result<FormView, Error> {
    FormView::new(LABELS).with("role", detail.member.role.as_str()).versioned()
}

async fn show(
    console: &Console,
    visit: &Visit<MemberScope>,
    detail: MemberDetail,
    form: FormView,
) -> Result<Page, Error> {
    let roles = match may_grant(detail.caller, detail.member.role) {
        true => labels::grantable(detail.caller),
        false => Vec::new(),
    };
    let page = MemberPage {
        shell: Shell::read(console, &visit.person).await?,
        keys: makers::of_member(&console.keys, &visit.scope).await?,
        is_me: visit.person.session().user_id == visit.scope.member_id(),
        roles,
        detail,
        form,
    };
    Page::with_form(&page.form, &page)
}
