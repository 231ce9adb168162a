//! GET and POST /reset-password
//!
//! The page behind the link in the e-mail (docs/contract/pages.md#choose-a-new-password).

use askama::Template;

use crate::Api;
use crate::auth::reset_password::ResetPassword;
use crate::gate::Visitor;
use accounts::passwords;
use kernel::error::{Code, Error};
use web::input::{Form, Query};
use web::route::Operation;

use super::{FormProblems, Link, Page, is_dead_link};

/// The labels of the form's fields.
const LABELS: [(&str, &str); 2] =
    [("password_confirmation", "The repeated password"), ("password", "The password")];

#[derive(Template)]
#[template(path = "reset_password.html")]
pub(super) enum ResetPage<'a> {
    Form { token: Option<&'a str>, problems: FormProblems },
    Changed { belongs_to: &'a [String], has_console: bool },
    DeadLink { has_console: bool },
}

pub const READ: Operation = Operation {
    query: &[("token", "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc")],
    ..Operation::new("get_reset_password_page")
};

/// Show the page that sets a new password.
///
/// If the link has no token, the form also has a field for it.
pub async fn read(_: Api, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Page::new(&ResetPage::Form { token: link.token(), problems: FormProblems::default() })
}

pub const CREATE: Operation = Operation {
    errors: &[Code::InvalidToken, Code::PasswordQueueFull],
    example: crate::auth::reset_password::RESET_PASSWORD.example,
    ..Operation::new("send_reset_password_page")
};

/// Set a new password from the page.
///
/// If the password breaks a rule, the link stays valid. The form is shown again with the same token and
/// without the passwords.
pub async fn create(api: Api, scope: Visitor, form: Form<ResetPassword>) -> Result<Page, Error> {
    let has_console = api.console.enabled;
    let token = form.sent("token").trim().to_owned();
    let changed = match form.fields {
        Ok(fields) => passwords::reset(&api.accounts, scope.trail(), &token, &fields.password.0).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(changed) => Page::new(&ResetPage::Changed { belongs_to: &changed.belongs_to, has_console }),
        Err(error) if is_dead_link(&error) => {
            Page::error(Code::InvalidToken, &ResetPage::DeadLink { has_console })
        }
        Err(error) if error.code == Code::InvalidRequest => {
            let problems = FormProblems::new(&error.details, &LABELS);
            Page::error(error.code, &ResetPage::Form { token: Some(&token), problems })
        }
        Err(error) => Err(error),
    }
}
