//! GET /console/organizations/{organization_id}/webhooks/{webhook_id}/deliveries

pub mod redeliver;

use api::gate::Visit;
use api::organizations::webhooks::deliveries::DeliveryQuery;
use askama::Template;
use kernel::error::Error;
use kernel::ids::WebhookId;
use tenants::roles::OrganizationAction;
use web::forms::Filters;
use webhooks::access::WebhookScope;
use webhooks::deliveries::{self, Delivery, State};

use super::{Tab, meanings};
use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/webhooks/deliveries.html")]
struct DeliveriesPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    id: WebhookId,
    deliveries: Vec<Delivery>,
    listing: Listing,
    state: String,
    /// `true` if the user may redeliver events and the webhook is enabled.
    may_redeliver: bool,
}

/// List the deliveries of a webhook.
pub async fn list(
    console: Console,
    visit: Visit<WebhookScope>,
    query: Filters<DeliveryQuery>,
) -> Result<Page, Error> {
    let DeliveryQuery { page, state } = query.fields;
    let listed = deliveries::list(&console.webhooks, &visit.scope, state, page).await?;
    let webhook = visit.scope.webhook();
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&DeliveriesPage {
        tabs: super::tabs(&shell, webhook.id, Tab::Deliveries),
        id: webhook.id,
        deliveries: listed.rows,
        listing: Listing::new(page, listed.total, &query.sent),
        state: query.sent("state").to_owned(),
        may_redeliver: webhook.is_enabled && shell.may(OrganizationAction::ManageWebhooks),
        shell,
    })
}

/// Returns the outcome of the last attempt, with its status and duration.
fn attempt(delivery: &Delivery) -> String {
    let outcome = delivery.last_outcome.map(|of| meanings::outcome(of).to_owned());
    let status = delivery.last_status.map(|status| format!("status {status}"));
    let duration = delivery.last_duration_ms.map(|ms| format!("{ms} ms"));
    [outcome, status, duration].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns `true` if another attempt follows.
fn is_pending(delivery: &Delivery) -> bool {
    delivery.state == State::Pending
}
