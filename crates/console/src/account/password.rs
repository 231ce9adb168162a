//! GET and POST /console/account/password

use accounts::connections;
use accounts::password_changes::{self, Change};
use api::auth::change_password::ChangePassword;
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::account::{Tab, tabs};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[
    ("current_password", "Current password"),
    ("new_password", "New password"),
    ("new_password_confirmation", "Confirm new password"),
];

#[derive(Template)]
#[template(path = "account/password.html")]
struct PasswordPage {
    tabs: Vec<Tab>,
    shell: Shell,
    form: FormView,
    has_password: bool,
    /// `true` if users can sign in to this server with a password.
    are_passwords_taken: bool,
}

/// Show the form that changes the password.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS)).await
}

/// Change the password. Every other session of the user ends.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<ChangePassword>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let changed = match form.take() {
        Ok(body) => {
            let change =
                Change { current_password: &body.current_password.0, new_password: &body.new_password.0 };
            password_changes::change(&console.accounts, scope.trail(), scope.session(), &change).await
        }
        Err(error) => Err(error),
    };
    match changed {
        Ok(_) => Page::done(&console.link("/account/sessions"), Done::PasswordChanged),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<SessionScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let has_password = connections::list(&console.accounts, visit.scope.user_id()).await?.has_password;
    let are_passwords_taken = console.accounts.settings.sign_in.passwords;
    let page = PasswordPage { tabs: tabs(&shell), shell, form, has_password, are_passwords_taken };
    Page::with_form(&page.form, &page)
}
