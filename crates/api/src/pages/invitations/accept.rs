//! GET and POST /invitations/accept
//!
//! The page behind the link in the e-mail (docs/contract/pages.md#accept-an-invitation).

use askama::Template;

use crate::Api;
use crate::gate::Visitor;
use crate::pages::{Link, Page, is_dead_link};
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use tenants::invitations::{LinkOutcome, accept_by_link};
use web::input::{Form, Query};
use web::route::Operation;

#[derive(Template)]
#[template(path = "accept_invitation.html")]
pub(in crate::pages) enum AcceptPage<'a> {
    Form { token: Option<&'a str> },
    Followed { outcome: LinkOutcome, has_console: bool },
    DeadLink { has_console: bool },
}

record! {
    /// The token from the e-mail.
    #[derive(Debug)]
    pub struct AcceptInvitation in Api {
        /// The token from the link in the e-mail.
        token: Text<512> = required,
    }
}

pub const READ: Operation = Operation {
    query: &[("token", "VJCvSOPBd6-2vdmGOmfm_69aCHqs--JiBBkQllDW5lc")],
    ..Operation::new("get_accept_invitation_page")
};

/// Show the page that accepts an invitation.
///
/// If the link has no token, the page has a field for it.
pub async fn read(_: Api, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Page::new(&AcceptPage::Form { token: link.token() })
}

pub const CREATE: Operation = Operation {
    errors: &[Code::InvalidToken],
    example: crate::auth::verify_email::VERIFY_EMAIL.example,
    ..Operation::new("send_accept_invitation_page")
};

/// Accept an invitation.
///
/// The guest becomes a member. If the guest must do something else first, the page explains it, and the link
/// stays valid.
pub async fn create(api: Api, scope: Visitor, form: Form<AcceptInvitation>) -> Result<Page, Error> {
    let has_console = api.console.enabled;
    let followed = match form.fields {
        Ok(fields) => accept_by_link(&api.tenants, scope.trail(), fields.token.0.trim()).await,
        Err(error) => Err(error),
    };
    match followed {
        Ok(outcome) => Page::new(&AcceptPage::Followed { outcome, has_console }),
        Err(error) if is_dead_link(&error) => {
            Page::error(Code::InvalidToken, &AcceptPage::DeadLink { has_console })
        }
        Err(error) => Err(error),
    }
}
