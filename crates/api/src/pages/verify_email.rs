//! GET and POST /verify-email
//!
//! The page behind the link in the e-mail (docs/contract/pages.md#verify-an-address). It requires more than a
//! click: someone else may have registered the address, and its owner would give them access by following the
//! link.

use askama::Template;

use crate::Api;
use crate::gate::Visitor;
use crate::refusals::PASSWORD_GUESS;
use accounts::verification::{verify_with_new_password, verify_with_password};
use input::fields::{Fields, Record};
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::secrets::token::MailToken;
use web::input::{Form, Query};
use web::route::Operation;

use super::{FormProblems, Link, Page, is_dead_link};

/// The labels of the forms' fields.
const LABELS: [(&str, &str); 3] = [
    ("new_password_confirmation", "The repeated password"),
    ("new_password", "The new password"),
    ("password", "The password"),
];

#[derive(Template)]
#[template(path = "verify_email.html")]
pub(super) enum VerifyPage<'a> {
    /// A form for the token.
    Token,
    /// Two forms; the user confirms the address with one of them.
    Forms {
        token: &'a str,
        problems: FormProblems,
    },
    /// The verified address. If a new password was set, `new_password` contains the organizations of the
    /// account.
    Confirmed {
        email: &'a str,
        new_password: Option<&'a [String]>,
        has_console: bool,
    },
    DeadLink {
        has_console: bool,
    },
}

/// The token from the e-mail, and the proof that the account belongs to the reader.
#[derive(Debug)]
pub struct ConfirmAddress {
    token: Text<512>,
    proof: Option<Proof>,
}

/// A proof that the account belongs to the reader.
#[derive(Debug)]
enum Proof {
    /// The account's password.
    Password(String),
    /// A new password; setting it ends all sessions, keys and invitations of the account.
    NewPassword(String),
}

impl Record<Api> for ConfirmAddress {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let token = fields.described("The token from the link in the e-mail.").required("token");
        let password = fields.described("The password of the account.").optional::<Text<1024>>("password");
        let new_password = fields.described("The new password.").optional::<Text<1024>>("new_password");
        let confirmation =
            fields.described("The new password again.").optional::<Text<1024>>("new_password_confirmation");
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
                    let message = "`new_password_confirmation` must match the password.";
                    fields.problem::<()>("new_password_confirmation", "does_not_match", message);
                }
                Some(Proof::NewPassword(new_password.0))
            }
        };
        Some(Self { token: token?, proof })
    }
}

pub const READ: Operation = Operation {
    query: &[("token", "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc")],
    ..Operation::new("get_verify_email_page")
};

/// Show the page that verifies an e-mail address.
///
/// If the link has no token, the page has a field for it.
pub async fn read(_: Api, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Page::new(&match link.token() {
        Some(token) => VerifyPage::Forms { token, problems: FormProblems::default() },
        None => VerifyPage::Token,
    })
}

pub const CREATE: Operation = Operation {
    errors: &[Code::AccountDisabled, Code::InvalidToken],
    error_groups: &[PASSWORD_GUESS],
    example: r#"{
  "token": "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc",
  "password": "Correct-Horse-7-Staple"
}"#,
    ..Operation::new("send_verify_email_page")
};

/// Verify an e-mail address from the page.
///
/// After a mistake, the link stays valid. The forms are shown again with the same token and without the
/// passwords.
pub async fn create(api: Api, scope: Visitor, form: Form<ConfirmAddress>) -> Result<Page, Error> {
    let (accounts, has_console) = (&api.accounts, api.console.enabled);
    let token = form.sent("token").trim().to_owned();
    let confirmed = match form.fields {
        _ if MailToken::parse(&token).is_none() => Err(Code::InvalidToken.into()),
        Ok(ConfirmAddress { token: Text(token), proof }) => {
            let token = token.trim();
            match proof {
                None => return Page::new(&VerifyPage::Forms { token, problems: FormProblems::default() }),
                Some(Proof::Password(password)) => {
                    let verified = verify_with_password(accounts, scope.trail(), token, &password).await;
                    verified.map(|email| (email, None))
                }
                Some(Proof::NewPassword(password)) => {
                    let verified = verify_with_new_password(accounts, scope.trail(), token, &password).await;
                    verified.map(|new| (new.email, Some(new.belongs_to)))
                }
            }
        }
        Err(error) => Err(error),
    };
    match confirmed {
        Ok((email, belongs_to)) => Page::new(&VerifyPage::Confirmed {
            email: &email,
            new_password: belongs_to.as_deref(),
            has_console,
        }),
        Err(error) if is_dead_link(&error) => {
            Page::error(Code::InvalidToken, &VerifyPage::DeadLink { has_console })
        }
        Err(error) if matches!(error.code, Code::InvalidRequest | Code::WrongPassword) => {
            let problems = match error.code {
                Code::WrongPassword => FormProblems::wrong_password(),
                _ => FormProblems::new(&error.details, &LABELS),
            };
            Page::error(Code::InvalidRequest, &VerifyPage::Forms { token: &token, problems })
        }
        Err(error) => Err(error),
    }
}
