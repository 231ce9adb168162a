//! POST /v1/auth/reauthenticate/options

use crate::auth::passkeys::options::PasskeyOptions;
use crate::gate::SessionScope;
use accounts::Accounts;
use accounts::sign_in::passkey;
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

pub const CREATE: Operation = Operation {
    errors: &[Code::PasskeyNotFound, Code::PasskeysDisabled],
    ..Operation::new("create_reauthentication_options")
};

/// Start confirming the caller's identity with a passkey.
///
/// Returns the input of `PublicKeyCredential.parseRequestOptionsFromJSON`, with the account's passkeys.
pub async fn create(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<PasskeyOptions>, Error> {
    Ok(private(passkey::start_proof(&accounts, scope.session()).await?.into()))
}
