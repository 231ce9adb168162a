//! POST /v1/auth/change-email

use crate::Api;
use crate::gate::SessionScope;
use crate::refusals::PASSWORD_GUESS;
use accounts::Accounts;
use accounts::email_changes::{self, Request};
use input::record;
use input::types::{Email, Text};
use kernel::error::{Code, Error};
use kernel::naming::Name;
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

use super::Message;

record! {
    /// A new address, and the account's password.
    #[derive(Debug)]
    pub struct ChangeEmail in Api {
        /// The new e-mail address.
        pub new_email: Email = required,
        /// The password of the account.
        pub password: Text<1024> = required,
    }
}

pub const CHANGE_EMAIL: Operation = Operation {
    errors: &[Code::NoPassword, Code::ReauthenticationRequired],
    error_groups: &[PASSWORD_GUESS],
    example: r#"{
  "new_email": "ada.lovelace@example.com",
  "password": "Correct-Horse-7-Staple"
}"#,
    ..Operation::new("change_email")
};

/// Request a change of the e-mail address.
///
/// Nothing changes until the link in the e-mail to the new address is used. The response doesn't reveal
/// whether that address has an account. A wrong password counts as a failed login.
pub async fn change_email(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<ChangeEmail>,
) -> Result<Enveloped<Message>, Error> {
    let new_email = Name::from(body.new_email);
    let request = Request { new_email: &new_email, password: &body.password.0 };
    email_changes::request(&accounts, scope.trail(), scope.session(), &request).await?;
    let message = "We sent a link to the new address. Open it to change your address.";
    Ok(private(Message { message: message.to_owned() }))
}
