//! POST /console/organizations/{organization_id}/webhooks/{webhook_id}/test

use api::gate::Visit;
use kernel::error::{Code, Error};
use web::forms::ObjectForm;
use webhooks::access::WebhookScope;
use webhooks::{endpoints, new_ids};

use super::{HiddenFields, NEW_ID, webhook_link};
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Send a test to a webhook.
///
/// The form contains the sealed id of the test's event, so that submitting the form several times sends only
/// one event.
pub async fn create(
    console: Console,
    visit: Visit<WebhookScope>,
    form: ObjectForm<HiddenFields>,
) -> Result<Page, Error> {
    let link = webhook_link(&console, &visit.scope);
    let Some(id) = new_ids::open_test(&console.webhooks, &visit.scope, form.sent(NEW_ID)) else {
        return Page::done(&link, Done::FormTooOld);
    };
    let sent = async {
        let queued = endpoints::test(&console.webhooks, &visit.scope, Some(id)).await?;
        Ok::<_, Error>(queued.commit().await?)
    };
    let done = match sent.await {
        Ok(_) => Done::WebhookTested,
        Err(error) if error.code == Code::PreconditionFailed => Done::WebhookTestedBefore,
        Err(error) => return Err(error),
    };
    Page::done(&format!("{link}/deliveries"), done)
}
