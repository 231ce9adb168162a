//! GET and POST /console/organizations/{organization_id}/webhooks/{webhook_id}/rotate

use api::gate::Visit;
use askama::Template;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::version::{Expected, Version};
use web::forms::ObjectForm;
use web::input::NoInput;
use webhooks::access::WebhookScope;
use webhooks::endpoints::{self, Webhook};

use super::HiddenFields;
use super::secret::{self, NewSecret};
use crate::console::Console;
use crate::form_view::VERSION;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/webhooks/rotate.html")]
struct RotatePage<'a> {
    shell: Shell,
    webhook: &'a Webhook,
    /// The end of the previous secret, if events are still signed with it.
    previous_ends_at: Option<Time>,
    /// The version of the secret to replace, so that sending the form again doesn't rotate the webhook again.
    version: String,
}

/// Ask whether to rotate the secret of a webhook.
pub async fn read(console: Console, visit: Visit<WebhookScope>, _: NoInput) -> Result<Page, Error> {
    let (webhook, now) = (visit.scope.webhook(), console.clock.now());
    Page::new(&RotatePage {
        shell: Shell::read(&console, &visit.person).await?,
        webhook,
        previous_ends_at: webhook.previous_ends_at.filter(|at| *at > now),
        version: webhook.secret_version()?.to_string(),
    })
}

/// Rotate the secret of a webhook, and show the new secret.
///
/// The form contains the version of the secret to replace, so that submitting the form several times creates
/// only one secret.
pub async fn create(
    console: Console,
    visit: Visit<WebhookScope>,
    form: ObjectForm<HiddenFields>,
) -> Result<Page, Error> {
    let shell = Shell::read(&console, &visit.person).await?;
    let id = visit.scope.webhook_id();
    let expected = Expected::OneOf(Version::parse(form.sent(VERSION)).into_iter().collect());
    let rotated = async {
        let rotated = endpoints::rotate(&console.webhooks, &visit.scope, &expected).await?;
        Ok::<_, Error>(rotated.commit().await?)
    };
    match rotated.await {
        Ok(rotated) => {
            let previous_ends_at = Some(rotated.previous_ends_at);
            secret::show(shell, id, &NewSecret { secret: &rotated.secret, previous_ends_at })
        }
        Err(error) if error.code == Code::PreconditionFailed => {
            let title = "This webhook was already rotated";
            let words = "The webhook got a new secret after you opened the page, either because this form was already \
                         submitted or because another user rotated it. That secret was shown only once. To get a new \
                         one, rotate the webhook again.";
            secret::show_made_before(shell, id, (title, words))
        }
        Err(error) => Err(error),
    }
}
