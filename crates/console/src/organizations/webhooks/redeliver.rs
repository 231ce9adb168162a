//! GET and POST /console/organizations/{organization_id}/webhooks/{webhook_id}/redeliver

use api::Api;
use api::gate::Visit;
use askama::Template;
use input::record;
use kernel::error::Error;
use kernel::ids::WebhookId;
use web::forms::ObjectForm;
use web::input::NoInput;
use webhooks::access::WebhookScope;
use webhooks::deliveries;

use super::webhook_link;
use crate::console::Console;
use crate::days::DayField;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("since", "Since")];

/// The number of days between the default first day and today.
const OFFERED_DAYS: i64 = 7;

record! {
    /// The first day whose failed events are redelivered.
    #[derive(Debug)]
    pub struct RedeliverSince in Api {
        since: DayField = required,
    }
}

#[derive(Template)]
#[template(path = "organizations/webhooks/redeliver.html")]
struct RedeliverPage {
    shell: Shell,
    form: FormView,
    id: WebhookId,
    is_enabled: bool,
}

/// Ask for the day from which to redeliver failed events.
pub async fn read(console: Console, visit: Visit<WebhookScope>, _: NoInput) -> Result<Page, Error> {
    let since = console.clock.now().day().plus(-OFFERED_DAYS);
    show(&console, &visit, FormView::new(LABELS).with("since", since.to_string())).await
}

/// Redeliver failed events.
pub async fn create(
    console: Console,
    visit: Visit<WebhookScope>,
    mut form: ObjectForm<RedeliverSince>,
) -> Result<Page, Error> {
    let begun = async {
        let RedeliverSince { since: DayField(since) } = form.take()?;
        let begun = deliveries::redeliver_failed(&console.webhooks, &visit.scope, since.start()).await?;
        Ok::<_, Error>(begun.commit().await?)
    };
    let link = format!("{}/deliveries", webhook_link(&console, &visit.scope));
    match begun.await {
        Ok(0) => Page::done(&link, Done::NothingToDeliver),
        Ok(_) => Page::done(&link, Done::DeliveriesBegun),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<WebhookScope>, form: FormView) -> Result<Page, Error> {
    let webhook = visit.scope.webhook();
    let shell = Shell::read(console, &visit.person).await?;
    let page = RedeliverPage { shell, form, id: webhook.id, is_enabled: webhook.is_enabled };
    Page::with_form(&page.form, &page)
}
