//! `/console/organizations/{organization_id}/webhooks` and `…/{webhook_id}`

pub mod delete;
pub mod deliveries;
mod meanings;
pub mod new;
pub mod redeliver;
pub mod rotate;
mod secret;
pub mod test;

use api::Api;
use api::gate::Visit;
use api::organizations::webhooks::UpdateWebhook;
use api::paging::PageQuery;
use askama::Template;
use input::fields::{Fields, Record};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, WebhookId};
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::roles::OrganizationAction;
use web::forms::{Filters, ObjectForm};
use web::input::NoInput;
use webhooks::access::WebhookScope;
use webhooks::endpoints::{self, DisabledReason, Webhook};
use webhooks::new_ids;

use self::meanings::event_choices;
use crate::conflicts;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::listing::Listing;
use crate::notices::Done;
use crate::options::Choice;
use crate::page::Page;
use crate::shell::Shell;

/// The fields of the forms.
const LABELS: Labels =
    &[("url", "URL"), ("description", "Description"), ("events", "Events"), ("enabled", "Send events")];

/// The name of the hidden field with the sealed id of the object that a form creates.
const NEW_ID: &str = "new_id";

/// A form with only hidden fields, which are read as they were sent.
#[derive(Debug)]
pub struct HiddenFields;

impl Record<Api> for HiddenFields {
    fn read(_: &mut Fields<'_, Api>) -> Option<Self> {
        Some(Self)
    }
}

#[derive(Template)]
#[template(path = "organizations/webhooks/list.html")]
struct ListPage {
    shell: Shell,
    webhooks: Vec<Webhook>,
    listing: Listing,
    may_manage: bool,
}

/// List an organization's webhooks.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let page = query.fields.0;
    let listed = endpoints::list(&console.webhooks, &visit.scope, page).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&ListPage {
        may_manage: shell.may(OrganizationAction::ManageWebhooks),
        listing: Listing::new(page, listed.total, &query.sent),
        webhooks: listed.rows,
        shell,
    })
}

/// Returns the state of a webhook in words, with the kind of its badge.
fn state(webhook: &Webhook) -> (&'static str, &'static str) {
    match webhook.disabled_reason {
        _ if webhook.is_enabled && webhook.failing_since.is_some() => ("failing", "warn"),
        _ if webhook.is_enabled => ("on", "good"),
        Some(DisabledReason::Gone) => ("off: receiver is gone", "bad"),
        Some(DisabledReason::Failing) => ("off: failed for five days", "bad"),
        Some(DisabledReason::Owner) | None => ("off", ""),
    }
}

/// Returns the number of types of events that a webhook receives.
fn types(webhook: &Webhook) -> String {
    crate::show::count(i64::try_from(webhook.events.len()).unwrap_or(i64::MAX), "type")
}

/// The pages of one webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tab {
    Webhook,
    Deliveries,
}

/// Returns the links between the pages of a webhook.
fn tabs(shell: &Shell, id: WebhookId, here: Tab) -> Vec<(String, &'static str, bool)> {
    let tabs = [(Tab::Webhook, "", "Webhook"), (Tab::Deliveries, "/deliveries", "Deliveries")];
    tabs.map(|(tab, path, label)| (shell.item_link("webhooks", id, path), label, tab == here)).into()
}

#[derive(Template)]
#[template(path = "organizations/webhooks/webhook.html")]
struct WebhookPage<'a> {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    form: FormView,
    webhook: &'a Webhook,
    events: Vec<Choice>,
    /// The types of events that the webhook receives, with their meanings.
    taken: Vec<String>,
    /// The end of the previous secret, if events are still signed with it.
    previous_ends_at: Option<Time>,
    may_manage: bool,
    /// The sealed id of the next test event.
    test_id: String,
}

/// Show a webhook. Owners also see the form that changes it.
pub async fn read(console: Console, visit: Visit<WebhookScope>, _: NoInput) -> Result<Page, Error> {
    let form = filled(visit.scope.webhook())?;
    show(&console, &visit, form).await
}

/// Change a webhook.
pub async fn update(
    console: Console,
    visit: Visit<WebhookScope>,
    mut form: ObjectForm<UpdateWebhook>,
) -> Result<Page, Error> {
    let webhook = visit.scope.webhook();
    let link = webhook_link(&console, &visit.scope);
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &filled(webhook)?, &link).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![webhook.version()?]);
    let changed = match form.take() {
        Ok(body) => endpoints::update(&console.webhooks, &visit.scope, &expected, body.into()).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&link, Done::WebhookChanged),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Returns the link to the webhooks of an organization.
fn list_link(console: &Console, organization_id: OrganizationId) -> String {
    console.link(&format!("/organizations/{organization_id}/webhooks"))
}

/// Returns the link to a webhook.
fn webhook_link(console: &Console, scope: &WebhookScope) -> String {
    format!("{}/{}", list_link(console, scope.organization_id()), scope.webhook_id())
}

/// Returns the form filled with the current values of a webhook.
fn filled(webhook: &Webhook) -> Result<FormView, Error> {
    FormView::new(LABELS)
        .with("url", webhook.url.as_str())
        .with_optional("description", webhook.description.as_deref())
        .with_all("events", webhook.events.iter().map(|of| of.as_str()))
        .with("enabled", webhook.is_enabled.to_string())
        .versioned()
}

async fn show(console: &Console, visit: &Visit<WebhookScope>, form: FormView) -> Result<Page, Error> {
    let (webhook, now) = (visit.scope.webhook(), console.clock.now());
    let shell = Shell::read(console, &visit.person).await?;
    let page = WebhookPage {
        tabs: tabs(&shell, webhook.id, Tab::Webhook),
        may_manage: shell.may(OrganizationAction::ManageWebhooks),
        form,
        webhook,
        events: event_choices(),
        taken: webhook.events.iter().map(|of| meanings::with_meaning(*of)).collect(),
        previous_ends_at: webhook.previous_ends_at.filter(|at| *at > now),
        test_id: new_ids::seal_test(&console.webhooks, &visit.scope)?,
        shell,
    };
    Page::with_form(&page.form, &page)
}
