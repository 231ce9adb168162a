//! GET and POST /console/sign-in/second-factor

use accounts::second_factor::{self, SecondFactor as Factor};
use accounts::sign_in::finish_in_browser;
use api::Api;
use api::gate::{SecondStepVisit, SessionCookie};
use askama::Template;
use http::header;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::forms::{Filters, ObjectForm};

use super::{Next, enter, passkey_button};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::page::Page;
use crate::passkey_button::PasskeyButton;
use crate::shell::Shell;

record! {
    /// A one-time code.
    #[derive(Debug)]
    pub struct SecondFactor in Api {
        one_time_code: Text<64> = required,
        next: Option<Text<4000>> = optional,
    }
}

const LABELS: Labels = &[("one_time_code", "Code")];

#[derive(Template)]
#[template(path = "second_step.html")]
struct SecondStepPage {
    shell: Shell,
    form: FormView,
    factor: Factor,
    /// The hint about the codes that can be entered.
    code_hint: &'static str,
    /// `true` if the user asked to be remembered.
    is_remembered: bool,
    passkey: Option<PasskeyButton>,
}

/// Show the page that asks for the code.
pub async fn read(console: Console, step: SecondStepVisit, query: Filters<Next>) -> Result<Page, Error> {
    let form = FormView::new(LABELS).with("next", links::next(query.sent("next")).unwrap_or_default());
    show(&console, &step, form).await
}

/// Sign in with the code.
pub async fn create(
    console: Console,
    step: SecondStepVisit,
    mut form: ObjectForm<SecondFactor>,
) -> Result<Page, Error> {
    let visitor = &step.visit.scope;
    let signed_in = match form.take() {
        Ok(SecondFactor { one_time_code, .. }) => {
            let (pending, code) = (&step.pending, &one_time_code.0);
            finish_in_browser(&console.accounts, visitor.trail(), pending, code, visitor.user_agent()).await
        }
        Err(error) => Err(error),
    };
    let page = match signed_in {
        Ok(login) => enter(&console, &step.visit, &login, form.sent("next")).await?,
        // The password has changed in the meantime, so start over.
        Err(error) if error.code == Code::InvalidAccessToken => Page::see_other(&console.link("/sign-in"))?,
        Err(error) => return show(&console, &step, FormView::refused(LABELS, &form, error)?).await,
    };
    let cookie = SessionCookie::of_second_factor(&console.public_url).remove()?;
    Ok(page.with_header(header::SET_COOKIE, cookie))
}

async fn show(console: &Console, step: &SecondStepVisit, form: FormView) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, step.pending.user_id()).await?;
    let passkey = if factor.passkeys > 0 { passkey_button(console)? } else { None };
    let shell = Shell::without_person(console, &step.visit.target);
    let code_hint = match factor.totp_since {
        Some(_) => "Six digits. If you don’t have the app, enter one of your recovery codes.",
        None => "One of your recovery codes.",
    };
    let page =
        SecondStepPage { shell, form, factor, code_hint, is_remembered: step.pending.remember_me, passkey };
    Page::with_form(&page.form, &page)
}
