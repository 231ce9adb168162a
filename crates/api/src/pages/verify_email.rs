//! GET and POST /verify-email
//!
//! The page of the mail's link (docs/contract/pages.md#verify-an-address). It requires more than a click: a
//! stranger may have registered the address, and its owner, following the link, would give them access.

use crate::Api;
use crate::gate::Visitor;
use accounts::Accounts;
use accounts::verification::{verify_with_new_password, verify_with_password};
use input::fields::{Fields, Record};
use input::types::Text;
use kernel::error::{Code, Detail, Error};
use kernel::secrets::token::MailToken;
use web::input::{Form, Query};

use super::{FormProblem, Input, Link, Page, is_dead_link};

const TITLE: &str = "Confirm your e-mail address";
const ACTION: &str = "verify-email";
const BUTTON: &str = "Confirm my address";
const NEW_PASSWORD_BUTTON: &str = "Set the password and confirm";

/// The token from the mail, and the reader's proof that the account is theirs.
#[derive(Debug)]
pub struct ConfirmAddress {
    token: Text<512>,
    proof: Option<Proof>,
}

/// A proof that the account is the reader's.
#[derive(Debug)]
enum Proof {
    /// The account's password.
    Password(String),
    /// A new password; setting it ends all sessions, keys and invitations of the account.
    NewPassword(String),
}

impl Record<Api> for ConfirmAddress {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let token = fields.required("token");
        let password = fields.optional::<Text<1024>>("password");
        let new_password = fields.optional::<Text<1024>>("new_password");
        let confirmation = fields.optional::<Text<1024>>("new_password_confirmation");
        let proof = match (password?, new_password?, confirmation?) {
            (None, None, None) => None,
            (Some(Text(password)), None, None) => {
                if password.is_empty() {
                    return fields.problem("password", "required", "`password` is required.");
                }
                Some(Proof::Password(password))
            }
            (_, new_password, confirmation) => {
                for (name, value) in
                    [("new_password", &new_password), ("new_password_confirmation", &confirmation)]
                {
                    if value.as_ref().is_none_or(|value| value.0.is_empty()) {
                        fields.problem::<()>(name, "required", format!("`{name}` is required."));
                    }
                }
                let new_password = new_password?;
                if confirmation? != new_password {
                    let message = "`new_password_confirmation` must repeat the password.";
                    fields.problem::<()>("new_password_confirmation", "does_not_match", message);
                }
                Some(Proof::NewPassword(new_password.0))
            }
        };
        Some(Self { token: token?, proof })
    }
}

/// Show the page that verifies an e-mail address.
///
/// Without a token it asks for the token.
pub async fn read(_: Accounts, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Ok(match link.token() {
        Some(token) => confirmation_forms(Page::new(TITLE), token, &[]),
        None => Page::new(TITLE)
            .text("This link is not complete. Open the one in your mail again, or copy the token from the mail.")
            .form(ACTION, &[Input::Token], "Go on"),
    })
}

/// Verify an e-mail address from the page.
///
/// A mistake leaves the link good: the forms come back with the same token, and without the passwords.
pub async fn create(accounts: Accounts, scope: Visitor, form: Form<ConfirmAddress>) -> Result<Page, Error> {
    let token = form.sent("token").trim().to_owned();
    let confirmed = match form.fields {
        _ if MailToken::parse(&token).is_none() => Err(Code::InvalidToken.into()),
        Ok(ConfirmAddress { token: Text(token), proof }) => {
            let token = token.trim();
            match proof {
                None => return Ok(confirmation_forms(Page::new(TITLE), token, &[])),
                Some(Proof::Password(password)) => {
                    let verified = verify_with_password(&accounts, scope.trail(), token, &password).await;
                    verified.map(|email| confirmed_page(&email))
                }
                Some(Proof::NewPassword(password)) => {
                    let verified = verify_with_new_password(&accounts, scope.trail(), token, &password).await;
                    verified.map(|new| {
                        confirmed_page(&new.email)
                            .text("Your new password is set: log in with it.")
                            .organizations(&new.belongs_to)
                    })
                }
            }
        }
        Err(error) => Err(error),
    };
    match confirmed {
        Ok(page) => Ok(page.text("You can close this page.")),
        Err(error) if is_dead_link(&error) => Ok(dead_link()),
        Err(error) if matches!(error.code, Code::InvalidRequest | Code::WrongPassword) => {
            let problems: Vec<_> = match error.code {
                Code::WrongPassword => vec![wrong_password()],
                _ => error.details.iter().map(problem).collect(),
            };
            let page = Page { code: Some(Code::InvalidRequest), ..Page::new(TITLE) };
            Ok(confirmation_forms(page.problems(&problems), &token, &problems))
        }
        Err(error) => Err(error),
    }
}

/// Adds the two forms by which an address can be confirmed.
fn confirmation_forms(page: Page, token: &str, problems: &[FormProblem]) -> Page {
    let wrong = |name: &str| problems.iter().any(|problem| problem.field == name);
    let new_password =
        |name: &'static str, label, hint| Input::Password { name, label, hint, wrong: wrong(name) };
    let rules = "At least 8 characters, with an upper-case letter, a lower-case letter and a digit.";
    let own = [Input::HiddenToken(token), Input::CurrentPassword { wrong: wrong("password") }];
    let other = [
        Input::HiddenToken(token),
        new_password("new_password", "New password", Some(rules)),
        new_password("new_password_confirmation", "The same once more", None),
    ];
    page.text("Confirm with the password of your account that its mail reaches you.")
        .form(ACTION, &own, BUTTON)
        .heading("You did not create this account, or do not know its password?")
        .text(
            "Set a new password, and the account is yours. Everybody who is logged in to it is logged out, and its API keys and \
             invitations end.",
        )
        .form(ACTION, &other, NEW_PASSWORD_BUTTON)
}

fn confirmed_page(email: &str) -> Page {
    Page::success("Your address is confirmed").text(&format!("Mail for your account goes to {email}."))
}

fn dead_link() -> Page {
    Page::error("This link no longer works", Code::InvalidToken)
        .text("It works for 24 hours, and only once. If you have used it already, your address is confirmed: just log in.")
        .text(
            "Otherwise go to where you log in and say that you forgot your password. The link that you get then \
             confirms your address as well.",
        )
}

fn wrong_password() -> FormProblem {
    FormProblem { field: "password".to_owned(), sentence: "This is not the account's password.".to_owned() }
}

/// Rephrases the API's message about a field with the labels of the form.
fn problem(detail: &Detail) -> FormProblem {
    let sentence = match detail.code {
        "does_not_match" => "The two passwords are not the same.".to_owned(),
        "password_unchanged" => "The new password is the one that the account has.".to_owned(),
        _ => detail
            .message
            .replace("`new_password_confirmation`", "The repeated password")
            .replace("`new_password`", "The new password")
            .replace("`password`", "The password"),
    };
    FormProblem { field: detail.param.clone(), sentence }
}
