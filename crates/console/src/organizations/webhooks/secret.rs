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
    /// Until when the previous one signs, too; `None` if there is none.
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

/// Shows a new secret. It stands in this answer and nowhere else: not in a link, a cookie or a store. Nothing is read
/// for it, because an error would lose the secret: the shell was read before the secret was made.
///
/// # Errors
/// None: the page can always be made.
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

/// Says that a form which makes a secret was sent before (409).
///
/// # Errors
/// None: the page can always be made.
pub fn show_made_before(
    shell: Shell,
    id: WebhookId,
    (title, words): (&'static str, &'static str),
) -> Result<Page, Error> {
    Page::conflict(&MadeBeforePage { shell, id, title, words })
}
