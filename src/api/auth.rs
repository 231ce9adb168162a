//! `/v1/auth/…`: accounts and sessions (section 4.1). One file an operation.

mod attempts;
pub mod change_password;
mod first_credit;
pub mod forgot_password;
pub mod login;
pub mod logout;
pub mod me;
mod reclaiming;
pub mod refresh_token;
mod refusals;
pub mod register;
pub mod reset_password;
pub mod verify_email;

pub(crate) use attempts::NETWORK_KNOWN_MS;
pub use change_password::change_password;
pub use forgot_password::forgot_password;
pub use login::login;
pub use logout::logout;
pub use me::me;
pub use refresh_token::refresh_token;
pub use register::register;
pub use reset_password::reset_password;
pub use verify_email::verify_email;

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::clock::{SECOND_MS, Time};
use crate::error::{Detail, Error};
use crate::ids::{SessionId, TokenId, UserId};
use crate::input::Fields;
use crate::input::types::Text;
use crate::rules::password::{self, About};
use crate::secrets::jwt::{Claims, TokenKind};
use crate::store::users::User;

/// How long a session lives, in milliseconds: as long as its refresh token.
const REFRESH_TOKEN_MS: i64 = TokenKind::Refresh.life_ms();
/// The detail of a new password that is the old one.
const UNCHANGED: &str = "password_unchanged";
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
    let claims = Claims {
        iss: app.public_url.clone(),
        aud: app.public_url.clone(),
        sub: user_id,
        sid: session_id,
        jti: TokenId::new(now, &app.random).to_string(),
        iat: now.unix_seconds(),
        exp: now.plus_ms(kind.life_ms()).unix_seconds(),
    };
    Ok(app.signing_keys.keyset(app).await?.sign(kind, &claims))
}

/// `expires_in`: seconds.
const fn expires_in() -> i64 {
    TokenKind::Access.life_ms() / SECOND_MS
}

/// The rules of a new password, with what is known of its owner: every broken one is reported.
fn check_new_password(field: &str, password: &str, user: &User) -> Result<(), Error> {
    let about = About { username: &user.username, email: &user.email, full_name: user.full_name.as_deref() };
    let problems = password::check(password, &about).into_iter().map(|problem| Detail {
        param: field.to_owned(),
        code: problem.code,
        message: format!("`{field}` {}.", problem.message),
    });
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(problems)) }
}

/// The confirmation has to repeat the password (interface, section 5, rule 6).
fn check_repeated<const MAX: usize>(
    fields: &mut Fields<'_>,
    name: &'static str,
    password: Option<&Text<MAX>>,
    confirmation: Option<&Text<MAX>>,
) {
    if let (Some(password), Some(confirmation)) = (password, confirmation)
        && password != confirmation
    {
        fields.problem::<()>(name, "does_not_match", format!("`{name}` must repeat the password."));
    }
}
