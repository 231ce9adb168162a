//! GET and POST /invitations/accept
//!
//! The page of the mail's link (docs/contract/pages.md#accept-an-invitation).

use crate::Api;
use crate::gate::Visitor;
use crate::pages::{Input, Link, Page, is_dead_link};
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use tenants::Tenants;
use tenants::invitations::{LinkOutcome, accept_by_link};
use web::input::{Form, Query};

const TITLE: &str = "Accept the invitation";
const ACTION: &str = "accept";
const BUTTON: &str = "Accept the invitation";

record! {
    /// The token from the mail.
    #[derive(Debug)]
    pub struct AcceptInvitation in Api {
        token: Text<512> = required,
    }
}

/// Show the page that accepts an invitation.
///
/// Without a token it asks for the token.
pub async fn read(_: Tenants, _: Visitor, Query(link): Query<Link>) -> Result<Page, Error> {
    Ok(match link.token() {
        Some(token) => Page::new(TITLE)
            .text("One click, and you are a member of the organization that the mail names.")
            .form(ACTION, &[Input::HiddenToken(token)], BUTTON),
        None => Page::new(TITLE)
            .text("This link is not complete. Open the one in your mail again, or copy the token from the mail.")
            .form(ACTION, &[Input::Token], BUTTON),
    })
}

/// Accept an invitation.
///
/// The guest becomes a member, or the page says what is missing; then the link stays good.
pub async fn create(tenants: Tenants, scope: Visitor, form: Form<AcceptInvitation>) -> Result<Page, Error> {
    let followed = match form.fields {
        Ok(fields) => accept_by_link(&tenants, scope.trail(), fields.token.0.trim()).await,
        Err(error) => Err(error),
    };
    match followed {
        Ok(followed) => Ok(page(followed)),
        Err(error) if is_dead_link(&error) => Ok(Page::error("This link no longer works", Code::InvalidToken)
            .text("It works for seven days, and only once. If you have used it already, you are a member: just log in.")
            .text("Otherwise ask whoever invited you for a new invitation.")),
        Err(error) => Err(error),
    }
}

fn page(followed: LinkOutcome) -> Page {
    let then = "You are a member as soon as you have confirmed it. You do not need this page again.";
    match followed {
        LinkOutcome::Joined(organization) => Page::success("You are a member")
            .text(&format!("You belong to {organization} now."))
            .text("Log in to go there. You can close this page."),
        LinkOutcome::AlreadyMember(organization) => Page::success("You are a member already")
            .text(&format!("You belong to {organization}, with the role that you had before."))
            .text("You can close this page."),
        LinkOutcome::NoAccount(email) => Page::new("Create your account first")
            .text(&format!("The invitation is for {email}, and there is no account with this address yet."))
            .text("Register where you would log in, with exactly this address. You get a mail to confirm it.")
            .text(then),
        LinkOutcome::Unverified(email) => Page::new("Confirm your address first")
            .text(&format!(
                "There is an account for {email}, but nobody has confirmed yet that the address is theirs."
            ))
            .text("Open the link in the mail that came when you registered. It works for 24 hours.")
            .text(
                "If that is over, or if it was not you who registered, go to where you log in and say that you forgot \
                 your password. Choose a new one, and log in with it.",
            )
            .text(then),
        LinkOutcome::AwaitsLogin(email) => Page::new("Log in first")
            .text(&format!("The address {email} is confirmed, but nobody has logged in since."))
            .text("You are a member as soon as you log in. You do not need this page again.")
            .text(
                "If you do not know the password, or if it was not you who registered, go to where you log in and say \
                 that you forgot it.",
            ),
    }
}
