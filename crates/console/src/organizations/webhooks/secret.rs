//! The page that shows a new secret of a webhook, once.

use askama::Template;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::WebhookId;
use webhooks::rules::signing::WebhookSecret;

use crate::page::Page;
use crate::shell::Shell;

/// A new secret.
pub struct NewSecret<'a> {
    pub secret: &'a WebhookSecret,
    /// The time until which the previous secret also signs events; `None` if no previous secret exists.
    pub previous_ends_at: Option<Time>,
}

#[derive(Template)]
#[template(path = "organizations/webhooks/secret.html")]
struct SecretPage {
    shell: Shell,
    id: WebhookId,
    secret: String,
    previous_ends_at: Option<Time>,
}

/// Shows a new secret. Only this response contains it: no link, cookie or store does. Nothing is read here,
/// because an error would lose the secret. The shell was read before the secret was made.
///
/// # Errors
/// None: the page can always be rendered.
pub fn show(shell: Shell, id: WebhookId, new: &NewSecret<'_>) -> Result<Page, Error> {
    let NewSecret { secret, previous_ends_at } = *new;
    Page::new(&SecretPage { shell, id, secret: secret.expose(), previous_ends_at })
}

#[derive(Template)]
#[template(path = "organizations/webhooks/made_before.html")]
struct MadeBeforePage {
    shell: Shell,
    id: WebhookId,
    title: &'static str,
    words: &'static str,
}

/// Returns a page (409) for a form that was already submitted and made a secret.
///
/// # Errors
/// None: the page can always be rendered.
pub fn show_made_before(
    shell: Shell,
    id: WebhookId,
    (title, words): (&'static str, &'static str),
) -> Result<Page, Error> {
    Page::conflict(&MadeBeforePage { shell, id, title, words })
}
