//! `/v1/auth/me`

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use crate::gate::SessionScope;
use accounts::profiles::{Update, User as Row};
use accounts::{Accounts, profiles};
use input::record;
use input::types::{FullName, Phone, Username};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::patch::Patch;
use web::input::{Body, NoInput};
use web::reply::{Enveloped, private};
use web::route::Operation;

/// The caller's account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Me {
    /// The user of the account.
    user: User,
}

/// A user account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct User {
    /// The user's id.
    id: UserId,
    /// The e-mail address.
    email: String,
    /// The username.
    username: String,
    /// The user's full name.
    full_name: Option<String>,
    /// The phone number with its country code, for example `+441632960961`.
    phone: Option<String>,
    /// The time when the account was created.
    created_at: Time,
    /// `true` once the user has verified the e-mail address.
    email_verified: bool,
    /// Always `false`: phone numbers aren't verified.
    phone_verified: bool,
    /// The time of the user's last login; null if never.
    last_login_at: Option<Time>,
}

impl From<Row> for User {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            email: row.email,
            username: row.username,
            full_name: row.full_name,
            phone: row.phone,
            created_at: row.created_at,
            email_verified: row.email_verified_at.is_some(),
            phone_verified: row.phone_verified_at.is_some(),
            last_login_at: row.last_login_at,
        }
    }
}

impl Me {
    fn of(row: Row) -> Self {
        Self { user: row.into() }
    }
}

pub const ME: Operation = Operation::new("get_me");

/// Get the caller's account.
pub async fn me(accounts: Accounts, scope: SessionScope, _: NoInput) -> Result<Enveloped<Me>, Error> {
    let user = profiles::read(&accounts, scope.user_id()).await?.ok_or(Code::InvalidAccessToken)?;
    Ok(private(Me::of(user)))
}

record! {
    /// A merge patch of an account.
    #[derive(Debug)]
    pub struct UpdateMe in Api {
        /// The username.
        username: Option<Username> = change,
        /// The user's full name.
        full_name: Patch<FullName> = patch,
        /// The phone number with its country code, for example `+441632960961`.
        phone: Patch<Phone> = patch,
    }
}

impl UpdateMe {
    /// Returns the change for the operation.
    pub fn into_update(self) -> Update {
        Update {
            username: self.username.map(Into::into),
            full_name: self.full_name.map(|name| name.0),
            phone: self.phone.map(|phone| phone.0),
        }
    }
}

pub const UPDATE: Operation = Operation {
    errors: &[Code::UsernameTaken],
    example: r#"{
  "full_name": "Ada King",
  "phone": "+441632960961"
}"#,
    ..Operation::new("update_me")
};

/// Change the caller's account.
///
/// The e-mail address and the password have separate operations.
pub async fn update(
    accounts: Accounts,
    scope: SessionScope,
    Body(body): Body<UpdateMe>,
) -> Result<Enveloped<Me>, Error> {
    let user = profiles::update(&accounts, scope.trail(), scope.session(), body.into_update()).await?;
    Ok(private(Me::of(user)))
}
