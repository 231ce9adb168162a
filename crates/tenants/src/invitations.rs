//! Invitations into an organization, and how a guest becomes a member: by the page behind the mailed link, and whenever they
//! prove that the address is theirs.

use crate::access::{self, HeldOrganization, OrgScope};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, Kind};
use crate::rules::membership::{self, Acceptance};
use crate::store;
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::{InvitationId, UserId};
use kernel::naming::Name;
use kernel::secrets::token::MailToken;
use mail::posting::Draft;
use mail::templates::InvitationLetter;

use crate::store::invitations::{NewInvitation, Open, Standing};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event, Trail};

use super::Tenants;

/// How long an invitation holds, in milliseconds.
const LIFETIME_MS: i64 = 7 * DAY_MS;

/// A new invitation.
#[derive(Clone, Debug)]
pub struct New {
    /// The guest's address.
    pub email: Name,
    /// The guest's role; without one the organization's `default_role`.
    pub role: Option<OrganizationRole>,
    /// A few words to the guest.
    pub message: Option<String>,
}

/// An invitation right after it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// Its id.
    pub id: InvitationId,
    /// The guest's role.
    pub role: OrganizationRole,
    /// Its end.
    pub expires_at: Time,
}

/// Invites an address into the organization, by mail.
///
/// # Errors
/// 404 and 403 as at the gate; 403 for a role that the caller can't give, or while the caller's own address is not verified;
/// 409 for a member's address, for one with an open invitation, or when as many are open as may be; 429 for too many mails.
pub async fn create(tenants: &Tenants, scope: &OrgScope, new: New) -> Result<Created, Error> {
    let now = tenants.clock.now();
    let organization_id = scope.organization_id();
    let mut tx = tenants.db.write().await?;
    let (mut held, HeldOrganization { row, grantor, .. }) = scope.hold(&mut tx).await?;
    let role = new.role.unwrap_or(row.default_role);
    membership::invite(grantor, role)?;
    if !accounts::store::users::is_verified(&mut held, scope.user_id()).await? {
        return Err(Code::EmailNotVerified.into());
    }
    if store::organization_members::has_address(&mut held, organization_id, &new.email.folded).await? {
        return Err(Error::new(Code::AlreadyMember).param("email"));
    }
    let invitation = NewInvitation {
        id: InvitationId::new(now, &tenants.random),
        organization_id,
        email: &new.email.display,
        email_folded: &new.email.folded,
        role,
        message: new.message.as_deref(),
        invited_by: scope.user_id(),
        expires_at: now.plus_ms(LIFETIME_MS),
    };
    let (id, expires_at) = (invitation.id, invitation.expires_at);
    let open = store::invitations::open_count(&mut held, organization_id, now).await?;
    counts::one_more(&tenants.limits, Kind::Invitations, open)?;
    store::invitations::end_expired(&mut held, organization_id, invitation.email_folded, now).await?;
    store::invitations::insert(&mut held, &invitation, now).await?;
    let about = About { invitation_id: Some(id.to_string()), ..About::default() };
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::Invitation, about };
    tenants.outbox.post(&mut held, &sender, &draft, invitation.email, now).await?;
    let event = Event {
        action: Action::MemberInvited,
        target: id.to_string(),
        organization_id: Some(organization_id),
    };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    tx.commit().await?;
    tenants.outbox.notify_one();
    Ok(Created { id, role, expires_at })
}

/// Makes the token of an invitation's link, in place of an older one, and returns it with what the mail says; `None` when the
/// invitation isn't open any more.
///
/// # Errors
/// The database can't say.
pub async fn letter(
    tenants: &Tenants,
    id: InvitationId,
) -> Result<Option<(MailToken, InvitationLetter)>, Error> {
    let token = MailToken::generate(&tenants.random);
    let mut tx = tenants.db.write().await?;
    let letter = store::invitations::give_token(&mut tx, id, token.hash(), tenants.clock.now()).await?;
    tx.commit().await?;
    Ok(letter.map(|letter| (token, letter)))
}

/// What came of following an invitation's link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Followed {
    /// They are a member now, of the organization with this name.
    Joined(String),
    /// They were one before.
    AlreadyMember(String),
    /// There is no account with this address: the invitation waits.
    NoAccount(String),
    /// There is one, but the address isn't verified: the invitation waits.
    Unconfirmed(String),
    /// The address was verified by a token alone: the invitation waits for the next login.
    AwaitsLogin(String),
}

/// Takes up the invitation of a link for the account with its address.
///
/// The link doesn't confirm the address of an account that hasn't: another person may have made that account, in hope of a
/// guest who lets them in. Confirming the address with the account's password, a new password, or a login after the address
/// was confirmed shows whose it is.
///
/// # Errors
/// 400 `invalid_token` for a link that doesn't work any more.
pub async fn follow(tenants: &Tenants, trail: &Trail, token: &str) -> Result<Followed, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let now = tenants.clock.now();
    let mut tx = tenants.db.read().await?;
    let invitation = store::invitations::by_token(&mut tx, token.hash(), now).await?.ok_or_else(refused)?;
    let user = accounts::store::users::by_email(&mut tx, &invitation.email_folded).await?;
    let Some(user) = user else {
        return Ok(Followed::NoAccount(invitation.email));
    };
    if user.email_verified_at.is_none() {
        return Ok(Followed::Unconfirmed(invitation.email));
    }
    if accounts::store::users::awaits_login(&mut tx, user.id).await? {
        return Ok(Followed::AwaitsLogin(invitation.email));
    }
    drop(tx);
    let mut tx = tenants.db.write().await?;
    let outcome = accept(tenants, &mut tx, &trail.by(user.id), user.id, &invitation, now).await?;
    tx.commit().await?;
    match outcome {
        Some(Acceptance::Join(_)) => Ok(Followed::Joined(invitation.organization)),
        Some(Acceptance::AlreadyMember) => Ok(Followed::AlreadyMember(invitation.organization)),
        Some(Acceptance::Withdrawn) | None => Err(refused()),
    }
}

/// Takes up every invitation that is open for the address of a person who has just proved that it is theirs, in the
/// transaction of the proof.
///
/// # Errors
/// The database can't say.
pub async fn accept_all(
    tenants: &Tenants,
    tx: &mut Tx,
    trail: &Trail,
    (user_id, email_folded): (UserId, &str),
    now: Time,
) -> Result<(), Error> {
    for invitation in store::invitations::open_for(tx, email_folded, now).await? {
        accept(tenants, tx, trail, user_id, &invitation, now).await?;
    }
    Ok(())
}

/// Ends the invitation, as a membership or without one; none when it has ended already.
async fn accept(
    tenants: &Tenants,
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
        trail::record(&mut held, trail, &event, now, &tenants.random).await?;
    }
    Ok(Some(outcome))
}
