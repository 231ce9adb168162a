//! A new password set by the owner of an address, and the end of whoever made the account with it before.
//!
//! Anybody can register somebody else's address, log in and settle down before the owner comes. So when the first proof that
//! an account has of its address comes with a new password, everything ends by which the account could be used until then.

use crate::access::Trail;
use crate::app::App;
use crate::clock::Time;
use crate::db::{Change, Tx};
use crate::error::{Detail, Error};
use crate::mail::posting::Draft;
use crate::rules::networks::Network;
use crate::secrets::password::Place;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::mail_counters::Sender;
use crate::store::organization_members::Membership;
use crate::store::outbox::{About, Template};
use crate::store::users::{Credentials, User};

use super::{UNCHANGED, attempts, check_new_password, first_credit};

/// The most organizations that an account is told to belong to.
const MAX_TOLD: usize = 50;

/// The outcome of a new password.
pub(crate) struct NewPassword {
    /// The account's address.
    pub(crate) email: String,
    /// The organizations that the account belongs to, a line each, if somebody else may have made it so.
    pub(crate) belongs_to: Vec<String>,
}

/// The hash of a new password that meets the rules and isn't the one that the account has.
///
/// # Errors
/// 400 with what is wrong with the password.
pub(super) async fn hash_new(
    field: &'static str,
    password: &str,
    account: &Credentials,
    place: Place,
) -> Result<String, Error> {
    check_new_password(field, password, &account.user)?;
    if place.verify(password, Some(&account.password_hash)).await?.matches {
        let message = format!("`{field}` is the password that the account has: choose another one.");
        return Err(Error::invalid(vec![Detail { param: field.to_owned(), code: UNCHANGED, message }]));
    }
    place.hash(password).await
}

/// Sets the password of an account whose owner has shown to read its mail, ends its sessions and commits. If the address wasn't
/// verified before, everything else that was made before ends as well, and the owner is told what the account belongs to.
pub(super) async fn set_password(
    app: &App,
    mut tx: Tx,
    trail: &Trail,
    user: User,
    password_hash: &str,
    now: Time,
) -> Result<NewPassword, Error> {
    store::users::set_password(&mut tx, user.id, password_hash, now).await?;
    let verified = store::users::set_email_verified(&mut tx, user.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, None, now).await?;
    let network = Network::of(trail.address);
    attempts::end_all_waits(&mut tx, user.id, &user.email_folded, network, now).await?;
    let mut belongs_to = Vec::new();
    if verified.is_first() {
        end_what_was_before(app, &mut tx, trail, &user, now).await?;
        belongs_to = belongings(&mut tx, &user).await?;
    }
    first_credit::give(app, &mut tx, &verified, now).await?;
    let about = About { belongs_to: belongs_to.clone(), ..About::default() };
    let draft = Draft { template: Template::PasswordChanged, about };
    app.outbox.post(&mut tx, &Sender::person(trail, user.id), &draft, &user.email, now).await?;
    let event = Event { action: Action::PasswordReset, target: user.id.to_string(), organization_id: None };
    store::audit_log::record(&mut tx, trail, &event, now, &app.random).await?;
    store::changes::record(&mut tx, Change::User(user.id), now).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    Ok(NewPassword { email: user.email, belongs_to })
}

/// Voids the account's links, deletes the API keys that it has made and ends the invitations that it has sent.
async fn end_what_was_before(
    app: &App,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    store::email_tokens::void_all(tx, user.id).await?;
    store::invitations::end_all_sent(tx, user.id, now).await?;
    for organization_id in store::api_keys::organizations_of_maker(tx, user.id).await? {
        store::organizations::lock(tx, organization_id).await?;
    }
    for (id, organization_id) in store::api_keys::delete_made_by(tx, user.id, now).await? {
        let event = Event {
            action: Action::ApiKeyDeleted,
            target: id.to_string(),
            organization_id: Some(organization_id),
        };
        store::audit_log::record(tx, trail, &event, now, &app.random).await?;
    }
    Ok(())
}

/// The organizations that the account belongs to, a line each.
async fn belongings(tx: &mut Tx, user: &User) -> Result<Vec<String>, Error> {
    let most = i64::try_from(MAX_TOLD).unwrap_or(i64::MAX);
    let memberships = store::organization_members::of_person(tx, user.id, most.saturating_add(1)).await?;
    let mut lines: Vec<_> = memberships.iter().take(MAX_TOLD).map(line).collect();
    if memberships.len() > MAX_TOLD {
        lines.push("further ones, which you see when you log in".to_owned());
    }
    Ok(lines)
}

fn line(membership: &Membership) -> String {
    let Membership { organization, role, others } = membership;
    let others = match others {
        ..=0 => "no other member".to_owned(),
        1 => "1 other member".to_owned(),
        many => format!("{many} other members"),
    };
    format!("{organization}: {}, {others}", role.as_str())
}
