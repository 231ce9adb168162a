//! POST /v1/auth/register

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::Visitor;
use accounts::Accounts;
use accounts::registration::{self, NewAccount};
use accounts::rules::password::{self, PersonalData};
use input::record;
use input::types::{Email, FullName, Phone, Text, Username};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use web::input::Body;
use web::reply::{Enveloped, ok};
use web::route::Operation;

record! {
    /// The values of a new account.
    #[derive(Debug)]
    pub struct Register in Api {
        /// The e-mail address.
        email: Email = required,
        /// The password of the account.
        password: Text<1024> = required,
        /// The username.
        username: Username = required,
        /// The user's full name.
        full_name: Option<FullName> = optional,
        /// The phone number with its country code, for example `+441632960961`.
        phone: Option<Phone> = optional,
    }
    check(fields) {
        if let Some(password) = &password {
            // The password is checked even if another field is wrong, because all mistakes are reported at
            // once.
            let personal = PersonalData {
                username: username.as_ref().map_or("", |u| &u.display),
                email: email.as_ref().map_or("", |e| &e.display),
                full_name: full_name.as_ref().and_then(Option::as_ref).map(|f| f.0.as_str()),
                phone: phone.as_ref().and_then(Option::as_ref).map(|phone| phone.0.as_str()),
            };
            for problem in password::check(&password.0, &personal) {
                fields.problem::<()>("password", problem.code, format!("`password` {}.", problem.message));
            }
        }
    }
}

impl Register {
    /// Returns the values for the operation.
    pub fn as_new(&self) -> NewAccount<'_> {
        NewAccount {
            email: &self.email.display,
            email_folded: &self.email.folded,
            username: &self.username.display,
            username_folded: &self.username.folded,
            full_name: self.full_name.as_ref().map(|name| name.0.as_str()),
            phone: self.phone.as_ref().map(|phone| phone.0.as_str()),
            password: &self.password.0,
        }
    }
}

/// The new account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Registered {
    /// The user of the new account.
    user: RegisteredUser,
    /// `true` if an e-mail with a verification link was sent.
    verification_email_sent: bool,
}

/// The user in the reply to a registration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RegisteredUser {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The user's full name.
    full_name: Option<String>,
    /// The time when the account was created.
    created_at: Time,
}

pub const REGISTER: Operation = Operation {
    errors: &[
        Code::EmailTaken,
        Code::PasswordQueueFull,
        Code::RegistrationClosed,
        Code::TooManyAttempts,
        Code::UsernameTaken,
    ],
    example: r#"{
  "email": "ada@example.com",
  "password": "Correct-Horse-7-Staple",
  "username": "ada",
  "full_name": "Ada Lovelace"
}"#,
    ..Operation::new("register")
};

/// Register an account.
///
/// The user verifies the address with the link in an e-mail.
pub async fn register(
    accounts: Accounts,
    scope: Visitor,
    Body(body): Body<Register>,
) -> Result<Enveloped<Registered>, Error> {
    let (id, created_at) = registration::register(&accounts, scope.trail(), &body.as_new()).await?;
    let user = RegisteredUser {
        id,
        email: body.email.display,
        username: body.username.display,
        full_name: body.full_name.map(|name| name.0),
        created_at,
    };
    Ok(ok(Registered { user, verification_email_sent: true }))
}
