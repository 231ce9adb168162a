//! GET and POST /console/organizations/{organization_id}/members/invite

use api::gate::Visit;
use api::organizations::invitations::CreateInvitation;
use askama::Template;
use kernel::error::{Code, Error};
use tenants::access::OrgScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::labels::{self, Choice};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("email", "E-mail address"), ("role", "Role"), ("message", "Message")];

#[derive(Template)]
#[template(path = "organizations/members/invite.html")]
struct InvitePage {
    shell: Shell,
    form: FormView,
    /// The roles that the user may grant.
    roles: Vec<Choice>,
    /// `true` if the address already has an open invitation.
    is_invited: bool,
}

/// Show the form for an invitation.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let organization = tenants::organizations::read(visit.scope.clone()).organization;
    let form = FormView::new(LABELS).with("role", organization.default_role.as_str());
    show(&console, &visit, form).await
}

/// Invite someone to an organization.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<CreateInvitation>,
) -> Result<Page, Error> {
    let invited = async {
        let new = form.take()?.into_new();
        let invited = tenants::invitations::create(&console.tenants, &visit.scope, new).await?;
        Ok(invited.commit().await?)
    };
    match invited.await {
        Ok(_) => {
            let path = format!("/organizations/{}/members/invitations", visit.scope.organization_id());
            Page::done(&console.link(&path), Done::MemberInvited)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<OrgScope>, form: FormView) -> Result<Page, Error> {
    let page = InvitePage {
        shell: Shell::read(console, &visit.person).await?,
        roles: labels::grantable(visit.scope.role()),
        is_invited: form.code() == Some(Code::AlreadyInvited),
        form,
    };
    Page::with_form(&page.form, &page)
}
