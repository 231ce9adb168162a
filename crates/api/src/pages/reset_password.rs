//! GET and POST /reset-password
//!
//! The page of the mail's link (docs/contract/pages.md#choose-a-new-password).

use crate::auth::reset_password::ResetPassword;
use crate::gate::Visitor;
use accounts::{Accounts, passwords};
use kernel::error::{Code, Detail, Error};
use web::input::{Form, Query};

use super::{FormProblem, Input, Link, Page, is_dead_link};

const TITLE: &str = "Choose a new password";
const ACTION: &str = "reset-password";
const BUTTON: &str = "Change my password";

/// Show the page that sets a new password.
///
/// Without a token it asks for the token as well.
pub async fn read(_: Accounts, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Ok(match link.token() {
        Some(token) => Page::new(TITLE).form(ACTION, &inputs(Input::HiddenToken(token), &[]), BUTTON),
        None => Page::new(TITLE)
            .text("This link is not complete. Open the one in your mail again, or copy the token from the mail.")
            .form(ACTION, &inputs(Input::Token, &[]), BUTTON),
    })
}

/// Set a new password from the page.
///
/// A password that breaks a rule leaves the link good: the form comes back with the same token, and without
/// the passwords.
pub async fn create(accounts: Accounts, scope: Visitor, form: Form<ResetPassword>) -> Result<Page, Error> {
    let token = form.sent("token").trim().to_owned();
    let changed = match form.fields {
        Ok(fields) => passwords::reset(&accounts, scope.trail(), &token, &fields.password.0).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(changed) => Ok(Page::success("Your password is changed")
            .text("Log in with the new one. Wherever you were logged in, you have been logged out.")
            .organizations(&changed.belongs_to)
            .text("You can close this page.")),
        Err(error) if is_dead_link(&error) => {
            Ok(Page::error("This link no longer works", Code::InvalidToken)
                .text("It works for one hour, and only once; a newer mail replaces the one before.")
                .text(
                    "Go to where you log in and say again that you forgot your password: you get a new link.",
                ))
        }
        Err(error) if error.code == Code::InvalidRequest => {
            let problems: Vec<_> = error.details.iter().map(problem).collect();
            let inputs = inputs(Input::HiddenToken(&token), &problems);
            let page = Page { code: Some(error.code), ..Page::new(TITLE) };
            Ok(page.problems(&problems).form(ACTION, &inputs, BUTTON))
        }
        Err(error) => Err(error),
    }
}

fn inputs<'a>(token: Input<'a>, problems: &[FormProblem]) -> [Input<'a>; 3] {
    let password = |name: &'static str, label, hint| Input::Password {
        name,
        label,
        hint,
        wrong: problems.iter().any(|problem| problem.field == name),
    };
    let rules = "At least 8 characters, with an upper-case letter, a lower-case letter and a digit.";
    [
        token,
        password("password", "New password", Some(rules)),
        password("password_confirmation", "The same once more", None),
    ]
}

/// Rephrases the API's message about a field with the labels of the form.
fn problem(detail: &Detail) -> FormProblem {
    let sentence = match detail.code {
        "does_not_match" => "The two passwords are not the same.".to_owned(),
        "password_unchanged" => "The new password is the one that the account has.".to_owned(),
        _ => detail
            .message
            .replace("`password_confirmation`", "The repeated password")
            .replace("`password`", "The password"),
    };
    FormProblem { field: detail.param.clone(), sentence }
}
