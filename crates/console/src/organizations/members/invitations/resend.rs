//! POST /console/organizations/{organization_id}/members/invitations/{invitation_id}/resend

use api::Api;
use api::gate::Visit;
use input::record;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use tenants::access::InvitationScope;
use web::forms::ObjectForm;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

record! {
    /// The expiry of the invitation that the user saw. It ensures that a form that is sent twice sends only
    /// one e-mail.
    #[derive(Debug)]
    pub struct Resend in Api {
        expires_at: Time = required,
    }
}

/// Send an invitation again.
pub async fn create(
    console: Console,
    visit: Visit<InvitationScope>,
    mut form: ObjectForm<Resend>,
) -> Result<Page, Error> {
    let Resend { expires_at } = form.take()?;
    let sent = async {
        let resent = tenants::invitations::resend(&console.tenants, &visit.scope, Some(expires_at)).await?;
        Ok::<_, Error>(resent.commit().await?)
    };
    let done = match sent.await {
        Ok(_) => Done::InvitationResent,
        Err(error) if error.code == Code::PreconditionFailed => Done::InvitationResentBefore,
        Err(error) => return Err(error),
    };
    let path = format!("/organizations/{}/members/invitations", visit.scope.organization_id());
    Page::done(&console.link(&path), done)
}
