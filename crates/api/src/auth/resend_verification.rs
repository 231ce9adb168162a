//! POST /v1/auth/resend-verification

use crate::gate::SessionScope;
use accounts::{Accounts, verification};
use kernel::error::Error;
use web::input::NoInput;
use web::reply::{Enveloped, ok};

use super::Message;

/// Mail another link that verifies the caller's address.
///
/// Only the link in the latest mail works.
pub async fn resend_verification(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    verification::resend(&accounts, scope.trail(), scope.session()).await?;
    Ok(ok(Message { message: "A mail with another link is on its way to your address.".to_owned() }))
}
