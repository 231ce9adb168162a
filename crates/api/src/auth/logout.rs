//! POST /v1/auth/logout

use crate::gate::SessionScope;
use accounts::{Accounts, sessions};
use kernel::error::Error;
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

use super::Message;

pub const LOGOUT: Operation = Operation::new("logout");

/// Log out.
///
/// Ends the session: its refresh token and its access tokens stop working.
pub async fn logout(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<Message>, Error> {
    sessions::end(&accounts, scope.trail(), scope.session()).await?;
    Ok(ok(Message { message: "You are logged out.".into() }))
}
