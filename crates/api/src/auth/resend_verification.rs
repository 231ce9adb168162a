//! POST /v1/auth/resend-verification

use crate::gate::SessionScope;
use accounts::{Accounts, verification};
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

use super::Message;

pub const RESEND_VERIFICATION: Operation = Operation {
    errors: &[Code::EmailAlreadyVerified, Code::TooManyAttempts],
    ..Operation::new("resend_verification")
};

/// Send another link that verifies the caller's address.
///
/// Only the link in the latest e-mail works.
pub async fn resend_verification(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    verification::resend(&accounts, scope.trail(), scope.session()).await?;
    Ok(ok(Message { message: "We sent another link to your address.".to_owned() }))
}
