//! `/v1/auth/…`: accounts and sessions (docs/contract/accounts.md). One file per path.

pub mod change_email;
pub mod change_password;
pub mod connections;
pub mod forgot_password;
pub mod login;
pub mod logout;
pub mod me;
pub mod passkey_login;
pub mod passkeys;
pub mod providers;
pub mod reauthenticate;
pub mod recovery_codes;
pub mod refresh_token;
pub mod register;
pub mod resend_verification;
pub mod reset_password;
pub mod second_factor;
pub mod sessions;
pub mod totp;
pub mod verify_email;

pub use change_email::change_email;
pub use change_password::change_password;
pub use forgot_password::forgot_password;
pub use login::login;
pub use logout::logout;
pub use me::me;
pub use passkey_login::passkey_login;
pub use reauthenticate::reauthenticate;
pub use refresh_token::refresh_token;
pub use register::register;
pub use resend_verification::resend_verification;
pub use reset_password::reset_password;
pub use verify_email::verify_email;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use input::fields::Fields;
use input::types::Text;

/// The token type of all tokens (RFC 6750).
const BEARER: &str = "Bearer";

/// A human-readable message.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Message {
    /// The result, as a sentence.
    pub message: String,
}

/// Checks that the confirmation matches the password (docs/contract/accounts.md#password-rules).
fn check_repeated<const MAX: usize>(
    fields: &mut Fields<'_, Api>,
    name: &'static str,
    password: Option<&Text<MAX>>,
    confirmation: Option<&Text<MAX>>,
) {
    if let (Some(password), Some(confirmation)) = (password, confirmation)
        && password != confirmation
    {
        fields.problem::<()>(name, "does_not_match", format!("`{name}` must match the password."));
    }
}
