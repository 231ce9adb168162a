//! GET and POST /console/account/second-factor/passkeys/{passkey_id}

pub mod new;
pub mod remove;

use accounts::passkeys as operations;
use api::auth::passkeys::UpdatePasskey;
use api::gate::{OwnPasskeyScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("name", "Name")];

#[derive(Template)]
#[template(path = "account/second_factor/passkeys/rename.html")]
struct RenamePage {
    shell: Shell,
    form: FormView,
    /// The URL that the form is sent to.
    action: String,
}

/// Show the form that renames a passkey.
pub async fn read(console: Console, visit: Visit<OwnPasskeyScope>, _: NoInput) -> Result<Page, Error> {
    let scope = &visit.scope;
    let passkey = operations::read(&console.accounts, scope.caller().user_id(), scope.named()).await?;
    show(&console, &visit, FormView::new(LABELS).with("name", passkey.name)).await
}

/// Rename a passkey.
pub async fn update(
    console: Console,
    visit: Visit<OwnPasskeyScope>,
    mut form: ObjectForm<UpdatePasskey>,
) -> Result<Page, Error> {
    let (caller, named) = (visit.scope.caller(), visit.scope.named());
    let renamed = match form.take() {
        Ok(body) => {
            let name = body.name.as_ref().map(|name| name.display.as_str());
            operations::rename(&console.accounts, caller.trail(), caller.session(), named, name).await
        }
        Err(error) => Err(error),
    };
    match renamed {
        Ok(_) => Page::done(&console.link("/account/second-factor"), Done::PasskeyRenamed),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<OwnPasskeyScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let action = shell.link(&format!("/account/second-factor/passkeys/{}", visit.scope.named()));
    let page = RenamePage { shell, form, action };
    Page::with_form(&page.form, &page)
}
