//! The second step of a sign-in in a browser: the code of the second factor, after a password or a sign-on.

use crate::sign_in::attempts::Attempt;
use crate::sign_in::pending_login::{PendingLogin, SealedFactor};
use crate::sign_in::session::{BrowserLogin, FirstFactor, FirstStep, counted, open};
use crate::{Accounts, store};
use kernel::error::{Code, Error};
use kernel::networks::Network;
use kernel::secrets::sha256;

use crate::rules::user_agents::UserAgent;
use crate::store::sessions::SessionKind;
use crate::store::users::Credentials;
use trail::Trail;

/// Finishes a sign-in in a browser: checks the code, and opens the session. The outcome is counted in the
/// metrics.
///
/// # Errors
/// `invalid_one_time_code`; `invalid_access_token` if the password was changed, the connection was removed,
/// or the account is disabled; `passwords_disabled`; 429 while the caller has to wait.
pub async fn finish_in_browser(
    accounts: &Accounts,
    trail: &Trail,
    pending: &PendingLogin,
    one_time_code: &str,
    user_agent: Option<&UserAgent>,
) -> Result<BrowserLogin, Error> {
    let outcome = async {
        let first = first_step(accounts, trail, pending).await?;
        let device = (SessionKind::Browser, user_agent);
        let step = open(accounts, trail, first, Some(one_time_code), device).await?;
        step.ok_or(Code::InvalidAccessToken)?.browser_login(accounts).await
    };
    counted(accounts, outcome.await)
}

/// Restores the first step from the value that the browser has kept, if it is still valid.
async fn first_step(accounts: &Accounts, trail: &Trail, pending: &PendingLogin) -> Result<FirstStep, Error> {
    let network = Network::of(trail.address);
    let mut tx = accounts.db.read().await?;
    let found = store::users::credentials_by_id(&mut tx, pending.user_id(), network).await?;
    drop(tx);
    let Credentials { user, password_hash, last_login_here_at } = found.ok_or(Code::InvalidAccessToken)?;
    let factor = match pending.factor {
        SealedFactor::Password(checked) => {
            if !accounts.settings.sign_in.takes_password_of(&user) {
                return Err(Code::PasswordsDisabled.into());
            }
            let is_checked = |hash: &String| checked == sha256(hash.as_bytes());
            let hash = password_hash.filter(is_checked).ok_or(Code::InvalidAccessToken)?;
            FirstFactor::Password { checked_hash: hash.clone(), hash_to_keep: hash }
        }
        SealedFactor::SignOn(sign_on) => FirstFactor::SignOn(sign_on),
    };
    let attempt = Attempt::at(&user, last_login_here_at, network);
    let (remember_me, pending) = (pending.remember_me, Some(pending.clone()));
    Ok(FirstStep { user, attempt, factor, remember_me, pending })
}
