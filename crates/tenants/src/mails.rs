//! The mails of accounts and organizations, written when they leave: who has the address now, and a fresh token for its link.

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
const VERIFICATION_MS: i64 = DAY_MS;
/// How long the link of a password reset works, in milliseconds (docs/contract/accounts.md#mail-tokens).
const RESET_MS: i64 = HOUR_MS;
/// How far the clocks of replicas may lie apart, in milliseconds.
const CLOCKS_DIFFER_MS: i64 = MINUTE_MS;

/// Writes mails.
#[derive(Clone)]
pub struct Letters {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of chance.
    pub random: Random,
    /// The start of links, without a slash at the end.
    pub public_url: String,
}

impl Letters {
    /// The function that writes a queued mail.
    pub fn into_writer(self) -> WriteMail {
        let letters = Arc::new(self);
        Arc::new(move |mail| {
            let letters = Arc::clone(&letters);
            Box::pin(async move { letters.write(mail).await })
        })
    }

    /// Returns the mail, with a fresh token where it needs one; `None` when there is nobody or nothing to write to.
    ///
    /// # Errors
    /// The database's.
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
                let token = self.new_token(&user, Purpose::VerifyEmail, VERIFICATION_MS, None).await?;
                token.map(|token| templates::verify_email(&user.email, url, token.expose(), username))
            }
            Template::ResetPassword => {
                // Asked for before the password was changed, it would set another one afterwards.
                let asked_at = Some(mail.created_at);
                let token = self.new_token(&user, Purpose::ResetPassword, RESET_MS, asked_at).await?;
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
            // An address that nobody has proved to read is told nothing of logins.
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
            // Written above.
            Template::Invitation => None,
        })
    }

    /// The guest may have no account. An invitation that has ended says nothing any more.
    async fn invitation(&self, mail: &QueuedMail, guest: Option<&User>) -> Result<Option<Message>, Error> {
        let Some(id) = mail.about.invitation_id.as_deref().and_then(InvitationId::parse) else {
            return Ok(None);
        };
        let token = MailToken::generate(&self.random);
        let mut tx = self.db.write().await?;
        let letter = store::invitations::give_token(&mut tx, id, token.hash(), self.clock.now()).await?;
        tx.commit().await?;
        // To the address that was invited, as it was written: the account's may be written in another way.
        let (to, username) = (&mail.email, guest.map_or("", |user| &user.username));
        Ok(letter
            .map(|letter| templates::invitation(to, &self.public_url, token.expose(), username, &letter)))
    }

    /// A token, in place of an older one; none when it must not be older than the account's password, and is.
    async fn new_token(
        &self,
        user: &User,
        purpose: Purpose,
        lives_ms: i64,
        asked_at: Option<Time>,
    ) -> Result<Option<MailToken>, Error> {
        let token = MailToken::generate(&self.random);
        let now = self.clock.now();
        let mut tx = self.db.write().await?;
        if let Some(asked_at) = asked_at {
            let latest = now.plus_ms(CLOCKS_DIFFER_MS);
            accounts::store::users::lock(&mut tx, user.id).await?;
            if accounts::store::users::password_changed_since(&mut tx, user.id, asked_at, latest).await? {
                return Ok(None);
            }
        }
        accounts::store::email_tokens::replace(
            &mut tx,
            user.id,
            purpose,
            token.hash(),
            now,
            now.plus_ms(lives_ms),
        )
        .await?;
        tx.commit().await?;
        Ok(Some(token))
    }
}
