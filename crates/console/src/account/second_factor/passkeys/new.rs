//! GET and POST /console/account/second-factor/passkeys/new

use accounts::passkeys::{self as operations, New, Signed};
use accounts::rules::one_time_codes::RecoveryCode;
use accounts::rules::user_agents;
use accounts::second_factor;
use api::Api;
use api::gate::{SessionScope, Visit};
use askama::Template;
use input::record;
use input::types::{Name, Text};
use kernel::error::Error;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::account::second_factor::show_codes;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::passkey_button::PasskeyButton;
use crate::shell::Shell;

record! {
    /// A browser's response, and the purpose of the passkey.
    #[derive(Debug)]
    pub struct NewPasskey in Api {
        name: Name = required,
        asked_after_password: bool = or(false),
        ceremony: Text<4096> = required,
        credential: Text<16000> = required,
    }
}

const LABELS: Labels = &[
    ("name", "Name"),
    ("asked_after_password", "Also require a second factor with my password"),
    ("credential", "Passkey"),
];

#[derive(Template)]
#[template(path = "account/second_factor/passkeys/new.html")]
struct NewPage {
    shell: Shell,
    form: FormView,
    button: PasskeyButton,
    /// `true` if the password alone is currently enough to sign in.
    is_password_enough: bool,
}

/// Show the form that adds a passkey.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let name = visit.scope.user_agent().map_or_else(String::new, |it| user_agents::in_words(it.as_str()));
    let form = FormView::new(LABELS).with("name", name).with("asked_after_password", "true");
    show(&console, &visit, form).await
}

/// Add the passkey. For the first second factor, show the recovery codes.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<NewPasskey>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let added = match form.take() {
        Ok(NewPasskey { name, asked_after_password, ceremony, credential }) => {
            let new = New {
                signed: Signed { ceremony: &ceremony.0, credential: &credential.0 },
                name: &name.display,
                asks_after_password: Some(asked_after_password),
            };
            operations::add(&console.accounts, scope.trail(), scope.session(), &new).await
        }
        Err(error) => Err(error),
    };
    match added.map(|added| added.recovery_codes) {
        Ok(Some(codes)) => {
            let codes = codes.iter().map(RecoveryCode::expose).collect();
            show_codes(&console, &visit, "Your passkey is added", codes).await
        }
        Ok(None) => Page::done(&console.link("/account/second-factor"), Done::PasskeyAdded),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<SessionScope>, form: FormView) -> Result<Page, Error> {
    let options = operations::start(&console.accounts, visit.scope.session()).await?;
    let button = PasskeyButton::new(console, &options)?;
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let shell = Shell::read(console, &visit.person).await?;
    let page = NewPage { shell, form, button, is_password_enough: !factor.is_asked_for() };
    Page::with_form(&page.form, &page)
}
