//! GET /console/organizations/{organization_id}/members/invitations

pub mod resend;
pub mod withdraw;

use api::gate::Visit;
use api::organizations::invitations::InvitationQuery;
use askama::Template;
use kernel::error::Error;
use tenants::access::OrgScope;
use tenants::invitations::{Invitation, InvitationStatus};
use tenants::rules::membership::may_grant;
use web::forms::Filters;

use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/members/invitations.html")]
struct ListPage {
    shell: Shell,
    /// The invitations, each with `true` if the user may send it again and withdraw it.
    invitations: Vec<(Invitation, bool)>,
    listing: Listing,
    status: String,
}

/// List the invitations of an organization.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<InvitationQuery>,
) -> Result<Page, Error> {
    let InvitationQuery { page, status } = query.fields;
    let listed = tenants::invitations::list(&console.tenants, &visit.scope, status, page).await?;
    let caller = visit.scope.role();
    let manages = |row: &Invitation| row.status.check_not_accepted().is_ok() && may_grant(caller, row.role);
    Page::new(&ListPage {
        shell: Shell::read(&console, &visit.person).await?,
        listing: Listing::new(page, listed.total, &query.sent),
        invitations: listed.rows.into_iter().map(|row| (row.clone(), manages(&row))).collect(),
        status: query.sent("status").to_owned(),
    })
}

/// Returns the kind of badge of a status.
pub(crate) fn kind(status: &InvitationStatus) -> &'static str {
    match status {
        InvitationStatus::Pending => "",
        InvitationStatus::Accepted => "good",
        InvitationStatus::Expired => "warn",
    }
}
