//! POST /console/account/verification

use accounts::verification;
use api::gate::{SessionScope, Visit};
use kernel::error::{Code, Error};
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Send another link that verifies the user's address.
pub async fn create(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let scope = &visit.scope;
    let done = match verification::resend(&console.accounts, scope.trail(), scope.session()).await {
        Ok(()) => Done::VerificationSent,
        Err(error) if error.code == Code::EmailAlreadyVerified => Done::AlreadyVerified,
        Err(error) => return Err(error),
    };
    Page::done(&console.link("/account"), done)
}
