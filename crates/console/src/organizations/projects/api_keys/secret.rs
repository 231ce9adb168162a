//! The page that shows a new secret, once.

use askama::Template;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::ApiKeyId;
use keys::api_keys::ApiKey;
use keys::secret::ApiKeySecret;

use super::samples::{self, Samples};
use super::tools::Tool;
use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

/// A new secret.
pub struct NewSecret<'a> {
    pub secret: &'a ApiKeySecret,
    /// The end of the previous secret, if the key has one.
    pub previous_ends_at: Option<Time>,
    /// `true` if the secret replaces another secret of the key.
    pub is_rotation: bool,
}

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/secret.html")]
struct SecretPage<'a> {
    shell: Shell,
    key: &'a ApiKey,
    secret: &'a str,
    previous_ends_at: Option<Time>,
    is_rotation: bool,
    samples: Samples,
    tools: Vec<Tool>,
}

/// Shows a new secret. Only this response contains it: no link, cookie or store does. Nothing is read here,
/// because an error would lose the secret. The shell was read before the secret was made.
///
/// # Errors
/// None: the page can always be rendered.
pub fn show(console: &Console, shell: Shell, key: &ApiKey, new: &NewSecret<'_>) -> Result<Page, Error> {
    let secret = new.secret.expose();
    Page::new(&SecretPage {
        shell,
        key,
        secret,
        previous_ends_at: new.previous_ends_at,
        is_rotation: new.is_rotation,
        samples: Samples::new(console, key, secret),
        tools: samples::tools(console, key, secret),
    })
}

#[derive(Template)]
#[template(path = "organizations/projects/api_keys/made_before.html")]
struct MadeBeforePage {
    shell: Shell,
    id: ApiKeyId,
    title: &'static str,
    words: &'static str,
}

/// Returns a page (409) for a form that was already submitted and made a secret.
///
/// # Errors
/// None: the page can always be rendered.
pub fn show_made_before(
    shell: Shell,
    id: ApiKeyId,
    (title, words): (&'static str, &'static str),
) -> Result<Page, Error> {
    Page::conflict(&MadeBeforePage { shell, id, title, words })
}
