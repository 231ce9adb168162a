//! GET and POST /console/organizations/{organization_id}/webhooks/{webhook_id}/delete

use api::gate::Visit;
use askama::Template;
use kernel::error::Error;
use kernel::version::Expected;
use web::input::NoInput;
use webhooks::access::WebhookScope;
use webhooks::endpoints::{self, Webhook};

use super::list_link;
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/webhooks/delete.html")]
struct DeletePage<'a> {
    shell: Shell,
    webhook: &'a Webhook,
}

/// Ask whether to delete the webhook.
pub async fn read(console: Console, visit: Visit<WebhookScope>, _: NoInput) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&DeletePage { shell, webhook: visit.scope.webhook() })
}

/// Delete the webhook.
pub async fn create(console: Console, visit: Visit<WebhookScope>, _: NoInput) -> Result<Page, Error> {
    endpoints::delete(&console.webhooks, &visit.scope, &Expected::Any).await?;
    Page::done(&list_link(&console, visit.scope.organization_id()), Done::WebhookDeleted)
}
