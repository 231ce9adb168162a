//! How a guest becomes a member: by the page behind the mailed link, and whenever they prove that the address is theirs.

use crate::access::{self, Trail};
use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::UserId;
use crate::random::Random;
use crate::rules::membership::{self, Acceptance};
use crate::secrets::token::MailToken;
use crate::store;
use crate::store::audit_log::{Action, Event};
use crate::store::invitations::{Open, Standing};
use crate::store::users::User;

/// What came of following the link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Followed {
    /// They are a member now, of the organization with this name.
    Joined(String),
    /// They were one before.
    AlreadyMember(String),
    /// Nobody has registered with this address: the invitation waits.
    NoAccount(String),
    /// Somebody has, but hasn't proved that it is theirs: the invitation waits.
    Unconfirmed(String),
    /// It was proved by a token alone: the invitation waits for the next login.
    AwaitsLogin(String),
}

/// Takes up the invitation of a link for the account with its address.
///
/// The link doesn't confirm the address of an account that hasn't: somebody else may have made that account, in hope of a
/// guest who lets them in. Confirming the address with the account's password, a new password, or a login after the address
/// was confirmed shows whose it is.
pub(crate) async fn follow(app: &App, trail: &Trail, token: &str) -> Result<Followed, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let now = app.clock.now();
    let mut tx = app.db.read().await?;
    let invitation = store::invitations::by_token(&mut tx, token.hash(), now).await?.ok_or_else(refused)?;
    let user = store::users::by_email(&mut tx, &invitation.email_folded).await?;
    let Some(user) = user else {
        return Ok(Followed::NoAccount(invitation.email));
    };
    if user.email_verified_at.is_none() {
        return Ok(Followed::Unconfirmed(invitation.email));
    }
    if store::users::awaits_login(&mut tx, user.id).await? {
        return Ok(Followed::AwaitsLogin(invitation.email));
    }
    drop(tx);
    let mut tx = app.db.write().await?;
    let outcome = accept(&app.random, &mut tx, &trail.by(user.id), user.id, &invitation, now).await?;
    tx.commit().await?;
    match outcome {
        Some(Acceptance::Join(_)) => Ok(Followed::Joined(invitation.organization)),
        Some(Acceptance::AlreadyMember) => Ok(Followed::AlreadyMember(invitation.organization)),
        Some(Acceptance::Withdrawn) | None => Err(refused()),
    }
}

/// Takes up everything that is open for the address of somebody who has just proved that it is theirs, in the
/// transaction of the proof.
pub(crate) async fn accept_all(
    random: &Random,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    for invitation in store::invitations::open_for(tx, &user.email_folded, now).await? {
        accept(random, tx, trail, user.id, &invitation, now).await?;
    }
    Ok(())
}

/// Ends the invitation, as a membership or without one; none when somebody else was faster.
async fn accept(
    random: &Random,
    tx: &mut Tx,
    trail: &Trail,
    user_id: UserId,
    invitation: &Open,
    now: Time,
) -> Result<Option<Acceptance>, Error> {
    let organization_id = invitation.organization_id;
    let Some((mut held, standing)) = access::hold_invitation(tx, invitation, user_id, now).await? else {
        return Ok(None);
    };
    let Standing { offered, sender, guest } = standing;
    let outcome = membership::accept(offered, sender, guest);
    let accepted_by = (outcome != Acceptance::Withdrawn).then_some(user_id);
    store::invitations::end(&mut held, invitation.id, accepted_by, now).await?;
    if let Acceptance::Join(role) = outcome {
        store::organization_members::insert(&mut held, organization_id, user_id, role, now).await?;
        let event = Event {
            action: Action::InvitationAccepted,
            target: invitation.id.to_string(),
            organization_id: Some(organization_id),
        };
        store::audit_log::record(&mut held, trail, &event, now, random).await?;
    }
    Ok(Some(outcome))
}
