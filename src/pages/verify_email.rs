//! GET and POST /verify-email
//!
//! The interface description has no page: we show one, because the mail's link has to lead somewhere.

use crate::access::Visitor;
use crate::api::auth::verify_email::{VerifyEmail, verify};
use crate::app::App;
use crate::error::{Code, Error};
use crate::input::{Form, Query};

use super::{Input, Link, Page, is_dead_link};

const TITLE: &str = "Confirm your e-mail address";
const ACTION: &str = "verify-email";
const BUTTON: &str = "Confirm my address";

/// Asks for a click; with no token, for the token.
pub async fn read(_: App, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Ok(match link.token() {
        Some(token) => Page::new(TITLE)
            .text("One click, and we know that mail for your account reaches you.")
            .form(ACTION, &[Input::HiddenToken(token)], BUTTON),
        None => Page::new(TITLE)
            .text("This link is not complete. Open the one in your mail again, or copy the token from the mail.")
            .form(ACTION, &[Input::Token], BUTTON),
    })
}

/// Does what the endpoint does, and says what came of it.
pub async fn create(app: App, scope: Visitor, form: Form<VerifyEmail>) -> Result<Page, Error> {
    let verified = match form.fields {
        Ok(fields) => verify(&app, scope.trail(), fields.token.0.trim()).await,
        Err(error) => Err(error),
    };
    match verified {
        Ok(verified) => Ok(Page::good("Your address is confirmed")
            .text(&format!("Mail for your account goes to {}.", verified.email))
            .text("You can close this page.")),
        Err(error) if is_dead_link(&error) => Ok(Page::bad("This link no longer works", Code::InvalidToken)
            .text("It works for 24 hours, and only once. If you have used it already, your address is confirmed: just log in.")
            .text(
                "Otherwise go to where you log in and say that you forgot your password. The link that you get then \
                 confirms your address as well.",
            )),
        Err(error) => Err(error),
    }
}
