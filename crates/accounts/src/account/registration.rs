//! Registration of new accounts.

use crate::{Accounts, store};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::networks::Network;
use mail::posting::Draft;

use crate::settings::RegistrationMode;
use crate::store::users::NewUser;
use mail::store::mail_counters::Sender;
use mail::store::outbox::Template;
use trail::{Action, Event, Trail};

/// A new account. Its values follow the rules of [`kernel::naming`], and its password follows
/// [`crate::rules::password`].
#[derive(Clone, Copy)]
pub struct NewAccount<'a> {
    /// The e-mail address, as entered.
    pub email: &'a str,
    /// The folded e-mail address, for comparisons.
    pub email_folded: &'a str,
    /// The username, as entered.
    pub username: &'a str,
    /// The folded username, for comparisons.
    pub username_folded: &'a str,
    pub full_name: Option<&'a str>,
    /// The phone number in E.164 form.
    pub phone: Option<&'a str>,
    pub password: &'a str,
}

/// Creates an account, and e-mails a link that verifies its address. Returns the account's id and creation
/// time. The e-mail is queued in the same transaction, so it is sent even if this process ends.
///
/// # Errors
/// `registration_closed` if registration is disabled, requires an invitation that the address doesn't have,
/// or passwords are disabled; 409 if the address or the username is taken; 429 for more e-mails than allowed
/// within an hour, or while the password queue is full.
pub fn register<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    new: &'a NewAccount<'a>,
) -> BoxFuture<'a, Result<(UserId, Time), Error>> {
    Box::pin(async move {
        check_mode(accounts, new.email_folded).await?;
        let password_hash =
            accounts.hasher.acquire_place(Network::of(trail.address))?.hash(new.password).await?;
        let now = accounts.clock.now();
        let user_id = UserId::new(now, &accounts.random);
        let user = NewUser {
            id: user_id,
            email: new.email,
            email_folded: new.email_folded,
            username: new.username,
            username_folded: new.username_folded,
            full_name: new.full_name,
            phone: new.phone,
            password_hash: Some(&password_hash),
        };
        let mut tx = accounts.db.write().await?;
        store::users::insert(&mut tx, &user, now).await?;
        let draft = Draft::plain(Template::VerifyEmail);
        accounts.outbox.post(&mut tx, &Sender::visitor(trail), &draft, new.email, now).await?;
        let event =
            Event { action: Action::UserRegistered, target: user_id.to_string(), organization_id: None };
        trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok((user_id, now))
    })
}

/// Returns `registration_closed` if the address may not register.
async fn check_mode(accounts: &Accounts, email_folded: &str) -> Result<(), Error> {
    if !accounts.settings.sign_in.passwords {
        let message = "On this server, users sign in with a provider, which creates their account.";
        return Err(Error::new(Code::RegistrationClosed).message(message));
    }
    match accounts.settings.registration {
        RegistrationMode::Open => Ok(()),
        RegistrationMode::Closed => Err(Code::RegistrationClosed.into()),
        RegistrationMode::Invited => {
            let mut tx = accounts.db.read().await?;
            if (accounts.hooks.is_invited)(&mut tx, email_folded, accounts.clock.now()).await? {
                return Ok(());
            }
            let message = "To register on this server, you need an invitation to your e-mail address. Ask an \
                           owner of your organization or the server's administrator.";
            Err(Error::new(Code::RegistrationClosed).message(message))
        }
    }
}
