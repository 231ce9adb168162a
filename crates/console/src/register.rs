//! GET and POST /console/register

use accounts::registration;
use accounts::settings::RegistrationMode;
use api::auth::register::Register;
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

const LABELS: Labels = &[
    ("email", "E-mail address"),
    ("username", "Username"),
    ("full_name", "Full name (optional)"),
    ("password", "Password"),
];

#[derive(Template)]
#[template(path = "register.html")]
struct RegisterPage {
    shell: Shell,
    form: FormView,
    /// The configuration of who may register.
    mode: RegistrationMode,
    /// `true` if users can sign in to this server with a password.
    are_passwords_taken: bool,
}

/// Show the page that creates an account.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS))
}

/// Create an account. The user verifies the address with the link in an e-mail.
pub async fn create(
    console: Console,
    visit: OpenVisit<Visitor>,
    mut form: ObjectForm<Register>,
) -> Result<Page, Error> {
    let registered = match form.take() {
        Ok(new) => registration::register(&console.accounts, visit.scope.trail(), &new.as_new()).await,
        Err(error) => Err(error),
    };
    match registered {
        Ok(_) => Page::done(&console.link("/sign-in"), Done::Registered),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?),
    }
}

fn show(console: &Console, visit: &OpenVisit<Visitor>, form: FormView) -> Result<Page, Error> {
    let settings = &console.accounts.settings;
    let (mode, are_passwords_taken) = (settings.registration, settings.sign_in.passwords);
    let shell = Shell::without_person(console, &visit.target);
    let page = RegisterPage { shell, form, mode, are_passwords_taken };
    Page::with_form(&page.form, &page)
}
