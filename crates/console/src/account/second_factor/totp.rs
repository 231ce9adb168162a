//! GET and POST /console/account/second-factor/totp

pub mod confirm;

use accounts::second_factor::{self, Enrolment};
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::page::Page;
use crate::qr_code::QrCode;
use crate::shell::Shell;

const LABELS: Labels = &[("code", "Code")];

#[derive(Template)]
#[template(path = "account/second_factor/totp.html")]
struct StartPage {
    shell: Shell,
    /// `true` if the new app replaces another one.
    is_replacement: bool,
}

/// Show the page on which a user starts adding an authenticator app.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&StartPage { shell, is_replacement: factor.totp_since.is_some() })
}

#[derive(Template)]
#[template(path = "account/second_factor/qr_code.html")]
struct QrCodePage {
    shell: Shell,
    form: FormView,
    qr_code: QrCode,
    /// The secret, in groups of four characters for typing.
    secret: String,
    enrolment: Enrolment,
}

/// Generate a secret, and show it as a QR code and as text.
pub async fn create(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let enrolment = second_factor::start_totp(&console.accounts, visit.scope.session()).await?;
    show(&console, &visit, enrolment, FormView::new(LABELS)).await
}

/// Shows a secret that no code has confirmed yet.
async fn show(
    console: &Console,
    visit: &Visit<SessionScope>,
    enrolment: Enrolment,
    form: FormView,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    let qr_code = QrCode::new(enrolment.expose_url())?;
    let letters: Vec<char> = enrolment.expose_secret().chars().collect();
    let groups: Vec<String> = letters.chunks(4).map(|group| group.iter().collect()).collect();
    let page = QrCodePage { shell, form, qr_code, secret: groups.join(" "), enrolment };
    Page::with_form(&page.form, &page)
}
