//! POST /console/sign-in/passkey

use accounts::passkeys::Signed;
use accounts::sign_in::passkey::{PasskeyLogin, log_in_browser};
use api::Api;
use api::gate::{OpenVisit, SessionCookie, Visitor};
use http::header;
use input::record;
use input::types::Text;
use kernel::error::Error;
use web::forms::ObjectForm;

use super::{LABELS, enter, show};
use crate::console::Console;
use crate::form_view::FormView;
use crate::page::Page;

record! {
    /// A browser's response.
    #[derive(Debug)]
    pub struct Passkey in Api {
        ceremony: Text<4096> = required,
        credential: Text<16000> = required,
        remember_me: bool = or(false),
        second_step: bool = or(false),
        next: Option<Text<4000>> = optional,
    }
}

/// Sign in with a passkey.
///
/// An existing session of the browser ends, and so does a sign-in that still needs its second step.
pub async fn create(
    console: Console,
    visit: OpenVisit<Visitor>,
    mut form: ObjectForm<Passkey>,
) -> Result<Page, Error> {
    let signed_in = match form.take() {
        Ok(Passkey { ceremony, credential, remember_me, second_step, .. }) => {
            // On the page that asks for a code, the passkey replaces the code.
            let second_step_of = visit.pending_login.as_ref().filter(|_| second_step);
            if second_step && second_step_of.is_none() {
                return Page::see_other(&console.link("/sign-in"));
            }
            let login = PasskeyLogin {
                signed: Signed { ceremony: &ceremony.0, credential: &credential.0 },
                remember_me,
                user_agent: visit.scope.user_agent(),
                second_step_of,
            };
            log_in_browser(&console.accounts, visit.scope.trail(), &login).await
        }
        Err(error) => Err(error),
    };
    match signed_in {
        Ok(login) => {
            let page = enter(&console, &visit, &login, form.sent("next")).await?;
            let second_step = SessionCookie::of_second_factor(&console.public_url).remove()?;
            Ok(page.with_header(header::SET_COOKIE, second_step))
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?),
    }
}
