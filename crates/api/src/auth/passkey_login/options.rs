//! POST /v1/auth/passkey-login/options

use crate::auth::passkeys::options::PasskeyOptions;
use crate::gate::Visitor;
use accounts::Accounts;
use accounts::sign_in::passkey;
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

pub const CREATE: Operation =
    Operation { errors: &[Code::PasskeysDisabled], ..Operation::new("create_passkey_login_options") };

/// Start logging in with a passkey.
///
/// Returns the input of `PublicKeyCredential.parseRequestOptionsFromJSON`. The options don't identify an
/// account: the user chooses one of their passkeys for this server.
pub async fn create(accounts: Accounts, _: Visitor, _: NoInput) -> Result<Enveloped<PasskeyOptions>, Error> {
    Ok(private(passkey::start(&accounts)?.into()))
}
