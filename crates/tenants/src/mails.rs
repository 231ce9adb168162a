//! The mails of accounts and organizations, written when they are sent: to the current owner of the address,
//! with a fresh token in the link.

use std::sync::Arc;

use db::Db;
use kernel::addresses;
use kernel::clock::{Clock, DAY_MS, HOUR_MS, MINUTE_MS, Time};
use kernel::error::Error;
use kernel::ids::InvitationId;
use kernel::random::Random;
use kernel::secrets::token::MailToken;
use mail::{Message, WriteMail, templates};

use crate::store;
use accounts::store::email_tokens::Purpose;
use accounts::store::login_guesses::FAILURES_BEFORE_MAIL;
use accounts::store::users::User;
use mail::store::outbox::{QueuedMail, Template};

/// How long the link of a verification works, in milliseconds (docs/contract/accounts.md#mail-tokens).
const VERIFICATION_LINK_MS: i64 = DAY_MS;
/// How long the link of a password reset works, in milliseconds (docs/contract/accounts.md#mail-tokens).
const RESET_LINK_MS: i64 = HOUR_MS;
/// How far the clocks of replicas may differ, in milliseconds.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// Writes the mails of accounts and organizations.
#[derive(Clone)]
pub struct MailWriter {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// The start of links, without a slash at the end.
    pub public_url: String,
}

impl MailWriter {
    /// Returns the function that writes a queued mail.
    pub fn into_writer(self) -> WriteMail {
        let writer = Arc::new(self);
        Arc::new(move |mail| {
            let writer = Arc::clone(&writer);
            Box::pin(async move { writer.write(mail).await })
        })
    }

    /// Returns the mail, with a fresh token if it needs one; `None` if there is no recipient, or nothing to
    /// say any more.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write(&self, mail: &QueuedMail) -> Result<Option<Message>, Error> {
        let mut tx = self.db.read().await?;
        let user = accounts::store::users::by_email(&mut tx, &addresses::fold(&mail.email)).await?;
        drop(tx);
        if mail.template == Template::Invitation {
            return self.invitation(mail, user.as_ref()).await;
        }
        let Some(user) = user else {
            return Ok(None);
        };
        let (url, username) = (&self.public_url, &user.username);
        Ok(match mail.template {
            Template::VerifyEmail if user.email_verified_at.is_some() => None,
            Template::VerifyEmail => {
                let token = self.new_token(&user, Purpose::VerifyEmail, VERIFICATION_LINK_MS, None).await?;
                token.map(|token| templates::verify_email(&user.email, url, token.expose(), username))
            }
            Template::ResetPassword => {
                // A link requested before the password was changed must not set another one afterwards.
                let requested_at = Some(mail.created_at);
                let token =
                    self.new_token(&user, Purpose::ResetPassword, RESET_LINK_MS, requested_at).await?;
                token.map(|token| templates::reset_password(&user.email, url, token.expose(), username))
            }
            Template::PasswordChanged => {
                Some(templates::password_changed(&user.email, url, username, &mail.about))
            }
            Template::OrganizationDeleted => {
                Some(templates::organization_deleted(&user.email, url, username, &mail.about))
            }
            Template::AddedToProject => {
                Some(templates::added_to_project(&user.email, url, username, &mail.about))
            }
            Template::ProjectDeleted => {
                Some(templates::project_deleted(&user.email, url, username, &mail.about))
            }
            // Mails about logins go to verified addresses only.
            Template::LoginsRefused | Template::NewLogin if user.email_verified_at.is_none() => None,
            Template::LoginsRefused => Some(templates::logins_refused(
                &user.email,
                url,
                username,
                &mail.about,
                FAILURES_BEFORE_MAIL,
                mail.created_at,
            )),
            Template::NewLogin => {
                Some(templates::new_login(&user.email, url, username, &mail.about, mail.created_at))
            }
            // Handled above.
            Template::Invitation => None,
        })
    }

    /// Writes an invitation, whose guest may have no account; `None` if it has ended.
    async fn invitation(&self, mail: &QueuedMail, guest: Option<&User>) -> Result<Option<Message>, Error> {
        let Some(id) = mail.about.invitation_id.as_deref().and_then(InvitationId::parse) else {
            return Ok(None);
        };
        let token = MailToken::generate(&self.random);
        let mut tx = self.db.write().await?;
        let letter = store::invitations::set_token(&mut tx, id, token.hash(), self.clock.now()).await?;
        tx.commit().await?;
        // To the address as it was invited: the account's may be spelled in another way.
        let (to, username) = (&mail.email, guest.map_or("", |user| &user.username));
        Ok(letter
            .map(|letter| templates::invitation(to, &self.public_url, token.expose(), username, &letter)))
    }

    /// Stores a new token, in place of an older one. Returns `None` if the password has changed since
    /// `requested_at`.
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
        if let Some(requested_at) = requested_at {
            let latest = now.plus_ms(CLOCK_SKEW_MS);
            accounts::store::users::lock(&mut tx, user.id).await?;
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
