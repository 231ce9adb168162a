//! GET and POST /console/sign-in/second-factor

use accounts::login::finish_in_browser;
use api::Api;
use api::gate::{SecondStepVisit, SessionCookie};
use askama::Template;
use http::header;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::forms::{Filters, ObjectForm};

use super::{Next, enter};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::links;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// A code.
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
}

/// Show the page that asks for the code.
pub async fn read(console: Console, step: SecondStepVisit, query: Filters<Next>) -> Result<Page, Error> {
    let form = FormView::new(LABELS).with("next", links::next(query.sent("next")).unwrap_or_default());
    show(&console, &step, form)
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
            let (half, code) = (&step.half, &one_time_code.0);
            finish_in_browser(&console.accounts, visitor.trail(), half, code, visitor.user_agent()).await
        }
        Err(error) => Err(error),
    };
    let page = match signed_in {
        Ok(login) => enter(&console, &step.visit, &login, form.sent("next")).await?,
        // The password is another one since: from the beginning.
        Err(error) if error.code == Code::InvalidAccessToken => Page::see_other(&console.link("/sign-in"))?,
        Err(error) => return show(&console, &step, FormView::refused(LABELS, &form, error)?),
    };
    let cookie = SessionCookie::of_second_factor(&console.public_url).remove()?;
    Ok(page.with_header(header::SET_COOKIE, cookie))
}

fn show(console: &Console, step: &SecondStepVisit, form: FormView) -> Result<Page, Error> {
    let page = SecondStepPage { shell: Shell::without_person(console, &step.visit.target), form };
    Page::with_form(&page.form, &page)
}
