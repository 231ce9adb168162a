//! The e-mails of accounts and organizations. They are written when they are sent: to the current owner of
//! the address, with a new token in the link.

use std::sync::Arc;

use db::Db;
use kernel::addresses;
use kernel::clock::{Clock, DAY_MS, HOUR_MS, MINUTE_MS, Time};
use kernel::error::Error;
use kernel::ids::{InvitationId, UserId};
use kernel::random::Random;
use kernel::secrets::token::MailToken;
use mail::templates::Letter;
use mail::{Message, WriteMail};

use crate::{invitations, store};
use accounts::store::email_tokens::Purpose;
use accounts::store::login_guesses::FAILURES_BEFORE_MAIL;
use accounts::store::users::User;
use mail::store::outbox::{About, QueuedMail, Template};

/// The lifetime of a verification link, in milliseconds (docs/contract/accounts.md#mail-tokens).
const VERIFICATION_LINK_MS: i64 = DAY_MS;
/// The lifetime of a password reset link, in milliseconds (docs/contract/accounts.md#mail-tokens).
const RESET_LINK_MS: i64 = HOUR_MS;
/// The maximum difference between the clocks of replicas, in milliseconds.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// Writes the e-mails of accounts and organizations.
#[derive(Clone)]
pub struct MailWriter {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// The public URL, which links begin with, without a slash at the end.
    pub public_url: String,
}

impl MailWriter {
    /// Returns the function that writes a queued e-mail.
    pub fn into_writer(self) -> WriteMail {
        let writer = Arc::new(self);
        Arc::new(move |mail| {
            let writer = Arc::clone(&writer);
            Box::pin(async move { writer.write(mail).await })
        })
    }

    /// Writes an e-mail, with a new token if it needs one; `None` if the e-mail has no recipient or is no
    /// longer needed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write(&self, mail: &QueuedMail) -> Result<Option<Message>, Error> {
        let mut tx = self.db.read().await?;
        let user = accounts::store::users::by_email(&mut tx, &addresses::fold(&mail.email)).await?;
        drop(tx);
        match mail.template {
            Template::Invitation => return self.invitation(mail, user.as_ref()).await,
            Template::ChangeEmail => return self.email_change(mail, user.as_ref()).await,
            // The account already has a different address.
            Template::EmailChanged => {
                let username = mail.about.by.as_deref().unwrap_or_default();
                return self.letter(mail, &mail.email, username, None, &mail.about).map(Some);
            }
            _ => {}
        }
        let Some(user) = user else {
            return Ok(None);
        };
        let link = match (mail.template, user.email_verified_at) {
            (Template::VerifyEmail, Some(_)) => return Ok(None),
            // These e-mails are sent only to verified addresses.
            (
                Template::LoginsRefused
                | Template::NewLogin
                | Template::EmailChangeRequested
                | Template::SecondFactorAdded
                | Template::SecondFactorRemoved
                | Template::RecoveryCodeUsed
                | Template::PasskeyAdded
                | Template::PasskeyRemoved
                | Template::ChangedByOperator
                | Template::ProviderConnected
                | Template::ProviderDisconnected
                | Template::BudgetThreshold
                | Template::BalanceLow
                | Template::WebhookDisabled
                | Template::AutoTopUp,
                None,
            ) => {
                return Ok(None);
            }
            (Template::VerifyEmail, None) => Some((Purpose::VerifyEmail, VERIFICATION_LINK_MS, None)),
            // A link that was requested before a change of the password must not work after it.
            (Template::ResetPassword, _) => {
                Some((Purpose::ResetPassword, RESET_LINK_MS, Some(mail.created_at)))
            }
            _ => None,
        };
        let token = match link {
            None => None,
            Some((purpose, lifetime_ms, requested_at)) => {
                match self.new_token(&user, purpose, lifetime_ms, requested_at).await? {
                    None => return Ok(None),
                    token => token,
                }
            }
        };
        self.letter(mail, &user.email, &user.username, token.as_ref(), &mail.about).map(Some)
    }

    /// Writes an invitation; `None` if it has ended, or a later e-mail has sent it again. The guest may have
    /// no account.
    async fn invitation(&self, mail: &QueuedMail, guest: Option<&User>) -> Result<Option<Message>, Error> {
        let Some(id) = mail.about.invitation_id.as_deref().and_then(InvitationId::parse) else {
            return Ok(None);
        };
        let token = MailToken::generate(&self.random);
        let mut tx = self.db.write().await?;
        let (expires_at, now) = (invitations::expiry(mail.created_at), self.clock.now());
        let about = store::invitations::set_token(&mut tx, id, token.hash(), expires_at, now).await?;
        tx.commit().await?;
        let username = guest.map_or("", |user| &user.username);
        // The recipient is the invited address, which may be spelled differently from the account's address.
        about.map(|about| self.letter(mail, &mail.email, username, Some(&token), &about)).transpose()
    }

    /// Writes the e-mail to a new address of an account; `None` if this address is no longer pending. If
    /// another account has the address, the e-mail contains no link.
    async fn email_change(&self, mail: &QueuedMail, holder: Option<&User>) -> Result<Option<Message>, Error> {
        let Some(user_id) = mail.about.user_id.as_deref().and_then(UserId::parse) else {
            return Ok(None);
        };
        let token = MailToken::generate(&self.random);
        let mut tx = self.db.write().await?;
        let is_awaited = accounts::store::email_changes::set_token(
            &mut tx,
            user_id,
            &mail.email,
            token.hash(),
            self.clock.now(),
        )
        .await?;
        let user = accounts::store::users::by_id(&mut tx, user_id).await?;
        tx.commit().await?;
        let Some(user) = user.filter(|_| is_awaited) else {
            return Ok(None);
        };
        // The recipient is the address as entered, which another account may spell differently.
        match holder.filter(|holder| holder.id != user_id) {
            None => self.letter(mail, &mail.email, &user.username, Some(&token), &mail.about).map(Some),
            Some(holder) => {
                let about = About { by: Some(user.username), ..mail.about.clone() };
                self.letter(mail, &mail.email, &holder.username, None, &about).map(Some)
            }
        }
    }

    fn letter(
        &self,
        mail: &QueuedMail,
        to: &str,
        username: &str,
        token: Option<&MailToken>,
        about: &About,
    ) -> Result<Message, Error> {
        let letter = Letter {
            template: mail.template,
            to,
            username,
            public_url: &self.public_url,
            token: token.map(MailToken::expose),
            about,
            failures: FAILURES_BEFORE_MAIL,
            at: mail.created_at,
        };
        letter.write()
    }

    /// Stores a new token, in place of an earlier one. Returns `None` if the account has a different address
    /// by now, or its password has changed since `requested_at`.
    async fn new_token(
        &self,
        user: &User,
        purpose: Purpose,
        lifetime_ms: i64,
        requested_at: Option<Time>,
    ) -> Result<Option<MailToken>, Error> {
        let token = MailToken::generate(&self.random);
        let now = self.clock.now();
        let mut tx = self.db.write().await?;
        accounts::store::users::lock(&mut tx, user.id).await?;
        // Otherwise, someone who reads e-mails to the account's old address could use the link.
        if !accounts::store::users::has_address(&mut tx, user.id, &user.email_folded).await? {
            return Ok(None);
        }
        if let Some(requested_at) = requested_at {
            let latest = now.plus_ms(CLOCK_SKEW_MS);
            if accounts::store::users::password_changed_since(&mut tx, user.id, requested_at, latest).await? {
                return Ok(None);
            }
        }
        accounts::store::email_tokens::replace(
            &mut tx,
            user.id,
            purpose,
            token.hash(),
            now,
            now.plus_ms(lifetime_ms),
        )
        .await?;
        tx.commit().await?;
        Ok(Some(token))
    }
}
