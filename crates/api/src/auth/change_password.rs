//! POST /v1/auth/change-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::SessionScope;
use crate::refusals::PASSWORD_GUESS;
use accounts::Accounts;
use accounts::password_changes::{self, Change};
use accounts::passwords::UNCHANGED;
use accounts::rules::password;
use input::record;
use input::types::Text;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::check_repeated;

record! {
    /// The current and the new password.
    #[derive(Debug)]
    pub struct ChangePassword in Api {
        /// The current password.
        pub current_password: Text<1024> = required,
        /// The new password.
        pub new_password: Text<1024> = required,
    }
    reads {
        /// The new password again.
        new_password_confirmation: Text<1024> = required,
    }
    check(fields) {
        let confirmation = new_password_confirmation.as_ref();
        check_repeated(fields, "new_password_confirmation", new_password.as_ref(), confirmation);
        if let (Some(Text(current)), Some(Text(new))) = (&current_password, &new_password)
            && password::is_same(current, new)
        {
            let message = "`new_password` must be different from the current password.";
            fields.problem::<()>("new_password", UNCHANGED, message);
        }
    }
}

/// The reply to a change of the password.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PasswordChanged {
    /// A human-readable message.
    message: String,
    /// The time when the password was changed.
    updated_at: Time,
}

pub const CHANGE_PASSWORD: Operation = Operation {
    errors: &[Code::NoPassword, Code::ReauthenticationRequired],
    error_groups: &[PASSWORD_GUESS],
    example: r#"{
  "current_password": "Correct-Horse-7-Staple",
  "new_password": "Violet-Kettle-Orbit-9",
  "new_password_confirmation": "Violet-Kettle-Orbit-9"
}"#,
    ..Operation::new("change_password")
};

/// Change the password.
///
/// All other sessions of the account end, and earlier links that reset the password stop working. A wrong
/// current password counts as a failed login.
pub async fn change_password(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<ChangePassword>,
) -> Result<Enveloped<PasswordChanged>, Error> {
    let change = Change { current_password: &body.current_password.0, new_password: &body.new_password.0 };
    let updated_at = password_changes::change(&accounts, scope.trail(), scope.session(), &change).await?;
    let message = "Your password has changed. Your other sessions have ended.".to_owned();
    Ok(private(PasswordChanged { message, updated_at }))
}
