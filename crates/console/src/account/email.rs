//! GET and POST /console/account/email

use accounts::email_changes::{self, Request};
use api::auth::change_email::ChangeEmail;
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::Error;
use kernel::naming::Name;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("new_email", "New e-mail address"), ("password", "Your password")];

#[derive(Template)]
#[template(path = "account/email.html")]
struct EmailPage {
    shell: Shell,
    form: FormView,
}

/// Show the form that changes the e-mail address.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS)).await
}

/// Request a change of the e-mail address. The address changes when the link in the e-mail to the new address
/// is used.
pub async fn create(
    console: Console,
    visit: Visit<SessionScope>,
    mut form: ObjectForm<ChangeEmail>,
) -> Result<Page, Error> {
    let scope = &visit.scope;
    let requested = match form.take() {
        Ok(body) => {
            let new_email = Name::from(body.new_email);
            let request = Request { new_email: &new_email, password: &body.password.0 };
            email_changes::request(&console.accounts, scope.trail(), scope.session(), &request).await
        }
        Err(error) => Err(error),
    };
    match requested {
        Ok(()) => Page::done(&console.link("/account"), Done::EmailChangeRequested),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<SessionScope>, form: FormView) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let page = EmailPage { shell, form };
    Page::with_form(&page.form, &page)
}
