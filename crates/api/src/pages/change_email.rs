//! GET and POST /change-email
//!
//! The page behind the link in the e-mail (docs/contract/pages.md#confirm-a-new-address). It requires the
//! password in addition to a click, because the user may have entered someone else's address.

use askama::Template;

use crate::Api;
use crate::gate::Visitor;
use crate::refusals::PASSWORD_GUESS;
use accounts::email_changes;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use kernel::secrets::token::MailToken;
use web::input::{Form, Query};
use web::route::Operation;

use super::{FormProblems, Link, Page, is_dead_link};

/// The labels of the form's fields.
const LABELS: [(&str, &str); 1] = [("password", "The password")];

#[derive(Template)]
#[template(path = "change_email.html")]
pub(super) enum ChangePage<'a> {
    Form {
        token: Option<&'a str>,
        problems: FormProblems,
    },
    /// The change was made; this is the account's new address.
    Changed {
        email: &'a str,
        has_console: bool,
    },
    /// Another account already has the address.
    Taken {
        has_console: bool,
    },
    DeadLink {
        has_console: bool,
    },
}

record! {
    /// The token from the e-mail, and the account's password.
    #[derive(Debug)]
    pub struct ConfirmNewAddress in Api {
        /// The token from the link in the e-mail.
        token: Text<512> = required,
        /// The password of the account.
        password: Text<1024> = required,
    }
    check(fields) {
        if password.as_ref().is_some_and(|password| password.0.is_empty()) {
            fields.problem::<()>("password", "required", "`password` is required.");
        }
    }
}

pub const READ: Operation = Operation {
    query: &[("token", "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc")],
    ..Operation::new("get_change_email_page")
};

/// Show the page that confirms a new e-mail address.
///
/// If the link has no token, the form also has a field for it.
pub async fn read(_: Api, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Page::new(&ChangePage::Form { token: link.token(), problems: FormProblems::default() })
}

pub const CREATE: Operation = Operation {
    errors: &[Code::EmailTaken, Code::InvalidToken, Code::NoPassword],
    error_groups: &[PASSWORD_GUESS],
    example: crate::pages::verify_email::CREATE.example,
    ..Operation::new("send_change_email_page")
};

/// Confirm a new e-mail address from the page.
///
/// After a wrong password, the link stays valid. The form is shown again with the same token and without the
/// password.
pub async fn create(api: Api, scope: Visitor, form: Form<ConfirmNewAddress>) -> Result<Page, Error> {
    let has_console = api.console.enabled;
    let token = form.sent("token").trim().to_owned();
    let confirmed = match form.fields {
        _ if MailToken::parse(&token).is_none() => Err(Code::InvalidToken.into()),
        Ok(fields) => email_changes::confirm(&api.accounts, scope.trail(), &token, &fields.password.0).await,
        Err(error) => Err(error),
    };
    match confirmed {
        Ok(email) => Page::new(&ChangePage::Changed { email: &email, has_console }),
        Err(error) if is_dead_link(&error) => {
            Page::error(Code::InvalidToken, &ChangePage::DeadLink { has_console })
        }
        Err(error) if error.code == Code::EmailTaken => {
            Page::error(error.code, &ChangePage::Taken { has_console })
        }
        Err(error) if matches!(error.code, Code::InvalidRequest | Code::WrongPassword) => {
            let problems = match error.code {
                Code::WrongPassword => FormProblems::wrong_password(),
                _ => FormProblems::new(&error.details, &LABELS),
            };
            Page::error(Code::InvalidRequest, &ChangePage::Form { token: Some(&token), problems })
        }
        Err(error) => Err(error),
    }
}
