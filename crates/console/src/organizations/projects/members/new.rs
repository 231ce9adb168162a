//! GET and POST /console/organizations/{organization_id}/projects/{project_id}/members/new

use api::Api;
use api::gate::Visit;
use api::organizations::projects::members::AddMember;
use askama::Template;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::naming;
use tenants::access::ProjectScope;
use tenants::project_members::Candidate;
use tenants::roles::OrganizationAction;
use web::forms::{Filters, ObjectForm};

use super::list_link;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::labels::{self, Choice};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// The filter of the list of candidates.
    #[derive(Debug)]
    pub struct Candidates in Api {
        search: Option<Text<200>> = optional,
    }
}

const LABELS: Labels = &[("user_id", "Person"), ("role", "Role")];

#[derive(Template)]
#[template(path = "organizations/projects/members/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    candidates: Vec<Candidate>,
    search: String,
    /// The roles that the user may grant.
    roles: Vec<Choice>,
    may_invite: bool,
}

/// Show the members of the organization who can be added to the project.
pub async fn read(
    console: Console,
    visit: Visit<ProjectScope>,
    query: Filters<Candidates>,
) -> Result<Page, Error> {
    let form = FormView::new(LABELS).with("role", "viewer");
    show(&console, &visit, query.sent("search"), form).await
}

/// Add a member to a project.
pub async fn create(
    console: Console,
    visit: Visit<ProjectScope>,
    mut form: ObjectForm<AddMember>,
) -> Result<Page, Error> {
    let added = async {
        let new = form.take()?.into_new();
        let added = tenants::project_members::create(&console.tenants, &visit.scope, new).await?;
        Ok::<_, Error>(added.commit().await?)
    };
    match added.await {
        Ok(_) => Page::done(&list_link(&console, &visit.scope), Done::ProjectMemberAdded),
        // The form was sent twice, or someone else has added the same member.
        Err(error) if error.code == Code::AlreadyMember => {
            Page::done(&list_link(&console, &visit.scope), Done::ProjectMemberThere)
        }
        Err(error) => {
            let view = FormView::refused(LABELS, &form, error)?;
            show(&console, &visit, form.sent("search"), view).await
        }
    }
}

async fn show(
    console: &Console,
    visit: &Visit<ProjectScope>,
    search: &str,
    form: FormView,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let folded = naming::fold(search.trim());
    let role = shell.project.as_ref().map(|project| project.role);
    let page = NewPage {
        candidates: tenants::project_members::candidates(&console.tenants, &visit.scope, &folded).await?,
        search: search.to_owned(),
        roles: role.map(labels::grantable_in_project).unwrap_or_default(),
        may_invite: shell.may(OrganizationAction::InviteMembers),
        shell,
        form,
    };
    Page::with_form(&page.form, &page)
}
