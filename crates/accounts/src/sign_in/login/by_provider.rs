//! The first step of a sign-in with a provider.

use super::{BrowserLogin, BrowserStep, Checked, Opening, Proof, counted_step, open};
use crate::jwt::TokenKind;
use crate::rules::user_agents::UserAgent;
use crate::sign_in::guesses::Guess;
use crate::sign_in::pending_login::{PendingLogin, SignOn};
use crate::sign_in::refusals::{Reason, Refusal};
use crate::store::sessions::SessionKind;
use crate::store::users::User;
use crate::tokens::sign;
use crate::{Accounts, store};
use kernel::error::{Code, Error};
use kernel::networks::Network;
use trail::Trail;

/// Opens a session in a browser for a person who comes from a provider. If a code is required, the browser is
/// asked for it in a second step, as after a password.
///
/// # Errors
/// The connection has been removed or the account disabled meanwhile, or the database fails.
pub(crate) async fn sign_on_browser(
    accounts: &Accounts,
    trail: &Trail,
    (user, sign_on): (User, SignOn),
    user_agent: Option<&UserAgent>,
) -> Result<BrowserStep, Error> {
    let outcome = async {
        let network = Network::of(trail.address);
        let found = store::users::credentials_by_id(&mut accounts.db.read().await?, user.id, network).await?;
        let last_login_here_at = found.and_then(|found| found.last_login_here_at);
        let guess = Guess::new(&user.email_folded, network, last_login_here_at);
        let checked = Checked { user, guess, proof: Proof::SignOn(sign_on) };
        let opening = Opening {
            checked: &checked,
            one_time_code: None,
            first_step: None,
            kind: SessionKind::Browser,
            remember_me: false,
            user_agent,
        };
        match open(accounts, trail, &opening).await {
            Ok(opened) => {
                let (session, now) = opened.ok_or(Code::SignOnExpired)?;
                let token = sign(accounts, TokenKind::Browser, session, now).await?;
                Ok(BrowserStep::SignedIn(BrowserLogin { token, session, remember_me: false }))
            }
            Err(error) if error.code == Code::SecondFactorRequired => {
                Ok(BrowserStep::CodeDue(PendingLogin::with_sign_on(checked.user.id, sign_on)))
            }
            Err(error) => Err(error),
        }
    };
    counted_step(accounts, outcome.await)
}

/// Records that the sign-on of a person is refused because their account is disabled, and returns the refusal.
pub(crate) async fn refuse_disabled(accounts: &Accounts, trail: &Trail, user: &User) -> Error {
    let guess = Guess::new(&user.email_folded, Network::of(trail.address), None);
    let (email_folded, reason) = (user.email_folded.as_str(), Reason::AccountDisabled);
    let refusal = Refusal { guess: &guess, email_folded, user_id: Some(user.id), reason };
    let recorded = refusal.record(accounts, &trail.by(user.id), accounts.clock.now()).await;
    let error = recorded.err().unwrap_or_else(|| Code::AccountDisabled.into());
    accounts.metrics.logins.count(Some(error.code));
    error
}
