//! GET and POST /console/forgot-password

use accounts::passwords;
use api::auth::forgot_password::ForgotPassword;
use api::gate::{OpenVisit, Visitor};
use askama::Template;
use kernel::error::Error;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

const LABELS: Labels = &[("email", "E-mail address")];

#[derive(Template)]
#[template(path = "forgot_password.html")]
struct ForgotPage {
    shell: Shell,
    form: FormView,
}

/// Show the page that requests an e-mail to reset the password.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS))
}

/// Request an e-mail with a link that resets the password.
///
/// Neither the response nor its timing reveals whether an account has this address.
pub async fn create(
    console: Console,
    visit: OpenVisit<Visitor>,
    mut form: ObjectForm<ForgotPassword>,
) -> Result<Page, Error> {
    let requested = match form.take() {
        Ok(ForgotPassword { email }) => {
            passwords::request_reset(&console.accounts, visit.scope.trail(), &email.display).await
        }
        Err(error) => Err(error),
    };
    match requested {
        Ok(()) => Page::done(&console.link("/sign-in"), Done::ResetRequested),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?),
    }
}

fn show(console: &Console, visit: &OpenVisit<Visitor>, form: FormView) -> Result<Page, Error> {
    let page = ForgotPage { shell: Shell::without_person(console, &visit.target), form };
    Page::with_form(&page.form, &page)
}
