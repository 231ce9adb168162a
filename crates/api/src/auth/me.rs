//! GET /v1/auth/me

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::SessionScope;
use accounts::{Accounts, profiles};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use web::input::NoInput;
use web::reply::{Enveloped, private};

/// The caller's account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Me {
    user: User,
}

/// A user account.
#[derive(Debug, Serialize, JsonSchema)]
pub struct User {
    id: UserId,
    email: String,
    username: String,
    full_name: Option<String>,
    phone: Option<String>,
    created_at: Time,
    email_verified: bool,
    phone_verified: bool,
    last_login_at: Option<Time>,
}

/// Get the caller's account.
pub async fn me(accounts: Accounts, scope: SessionScope, _: NoInput) -> Result<Enveloped<Me>, Error> {
    let user = profiles::read(&accounts, scope.user_id()).await?.ok_or(Code::InvalidAccessToken)?;
    let user = User {
        id: user.id,
        email: user.email,
        username: user.username,
        full_name: user.full_name,
        phone: user.phone,
        created_at: user.created_at,
        email_verified: user.email_verified_at.is_some(),
        phone_verified: user.phone_verified_at.is_some(),
        last_login_at: user.last_login_at,
    };
    Ok(private(Me { user }))
}
