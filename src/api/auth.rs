//! `/v1/auth/…`: accounts and sessions (section 4.1). One file an operation.

pub mod login;
pub mod logout;
pub mod me;
pub mod refresh_token;
pub mod register;
pub mod verify_email;

pub use login::login;
pub use logout::logout;
pub use me::me;
pub use refresh_token::refresh_token;
pub use register::register;
pub use verify_email::verify_email;

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::clock::{DAY_MS, HOUR_MS, SECOND_MS, Time};
use crate::error::Error;
use crate::ids::{SessionId, TokenId, UserId};
use crate::secrets::jwt::{Claims, TokenKind};

/// How long an access token lives, in milliseconds (interface, section 8).
const ACCESS_TOKEN_MS: i64 = HOUR_MS;
/// How long a refresh token and its session live, in milliseconds (interface, section 8).
const REFRESH_TOKEN_MS: i64 = 30 * DAY_MS;
/// The only token type there is (RFC 6750).
const BEARER: &str = "Bearer";

/// A message for people.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Message {
    /// What happened.
    pub message: String,
}

async fn sign(
    app: &App,
    kind: TokenKind,
    user_id: UserId,
    session_id: SessionId,
    now: Time,
) -> Result<String, Error> {
    let lifetime_ms = match kind {
        TokenKind::Access => ACCESS_TOKEN_MS,
        TokenKind::Refresh => REFRESH_TOKEN_MS,
    };
    let claims = Claims {
        iss: app.public_url.clone(),
        aud: app.public_url.clone(),
        sub: user_id,
        sid: session_id,
        jti: TokenId::new(now, &app.random).to_string(),
        iat: now.unix_seconds(),
        exp: now.plus_ms(lifetime_ms).unix_seconds(),
    };
    Ok(app.signing_keys.keyset(app).await?.sign(kind, &claims))
}

/// `expires_in`: seconds.
const fn expires_in() -> i64 {
    ACCESS_TOKEN_MS / SECOND_MS
}
