//! POST /console/organizations/{organization_id}/members/invitations/{invitation_id}/withdraw

use api::gate::Visit;
use kernel::error::Error;
use tenants::access::InvitationScope;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Withdraw an invitation.
pub async fn create(console: Console, visit: Visit<InvitationScope>, _: NoInput) -> Result<Page, Error> {
    tenants::invitations::withdraw(&console.tenants, &visit.scope).await?;
    let path = format!("/organizations/{}/members/invitations", visit.scope.organization_id());
    Page::done(&console.link(&path), Done::InvitationWithdrawn)
}
