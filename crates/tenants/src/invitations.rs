//! Invitations to an organization. A guest becomes a member by opening the e-mailed link, or by proving that
//! the invited address is theirs.

use crate::access::{self, InvitationScope, LockedInvitation, LockedOrganization, OrgScope};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, CountedKind};
use crate::rules::membership::{self, Acceptance};
use crate::store;
use db::{Page, Tx, Uncommitted};
use events::data::MemberAdded;
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{InvitationId, OrganizationId, UserId};
use kernel::naming::Name;
use kernel::secrets::token::MailToken;
use mail::posting::Draft;

use crate::store::invitations::listing::{self, Filter};
use crate::store::invitations::{InvitationRoles, NewInvitation, OpenInvitation};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event, Trail};

use super::{ListPage, Tenants};

pub use crate::rules::invitations::InvitationStatus;
pub use crate::store::invitations::listing::Invitation;

/// The time for which an invitation stays open, in milliseconds.
const LIFETIME_MS: i64 = 7 * DAY_MS;

/// Returns the expiry of an invitation that is sent at this time.
pub(crate) fn expiry(sent_at: Time) -> Time {
    sent_at.plus_ms(LIFETIME_MS)
}

/// A new invitation.
#[derive(Clone, Debug)]
pub struct New {
    /// The guest's address.
    pub email: Name,
    /// The guest's role; `None` for the organization's `default_role`.
    pub role: Option<OrganizationRole>,
    /// A message to the guest.
    pub message: Option<String>,
}

/// An invitation that was just sent.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    pub id: InvitationId,
    pub role: OrganizationRole,
    pub expires_at: Time,
}

/// Invites an e-mail address to the organization.
///
/// # Errors
/// 404 and 403 as from the scope; `reauthentication_required` if a user invites an owner without having
/// recently confirmed their identity; 403 for a role that the caller can't grant, or if the caller's own
/// address isn't verified; 409 if the address belongs to a member or already has an open invitation, or if
/// the limit of open invitations is reached; 429 for too many e-mails.
pub fn create<'a>(
    tenants: &'a Tenants,
    scope: &'a OrgScope,
    new: New,
) -> BoxFuture<'a, Result<Uncommitted<Created>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let organization_id = scope.organization_id();
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedOrganization { found, grantor }) = scope.lock_and_recheck(&mut tx).await?;
        let role = new.role.unwrap_or(found.organization.default_role);
        membership::check_invitation(grantor, role)?;
        if role == OrganizationRole::Owner {
            scope.caller().require_proof()?;
        }
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
            expires_at: expiry(now),
        };
        let (id, expires_at) = (invitation.id, invitation.expires_at);
        let open = store::invitations::count_open(&mut held, organization_id, now).await?;
        counts::check_limit(&tenants.limits, CountedKind::Invitations, open)?;
        store::invitations::end_expired(&mut held, organization_id, invitation.email_folded, now).await?;
        store::invitations::insert(&mut held, &invitation, now).await?;
        let sender = Sender::person(scope.trail(), scope.user_id());
        tenants.outbox.post(&mut held, &sender, &draft(id), invitation.email, now).await?;
        let event = event(organization_id, id, Action::MemberInvited);
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        Ok(tenants.notify_after(Uncommitted::new(tx, Created { id, role, expires_at })))
    })
}

/// Returns the draft of an invitation's e-mail. Its contents are read when it is sent.
fn draft(id: InvitationId) -> Draft {
    let about = About { invitation_id: Some(id.to_string()), ..About::default() };
    Draft { template: Template::Invitation, about }
}

fn event(organization_id: OrganizationId, id: InvitationId, action: Action) -> Event {
    Event { action, target: id.to_string(), organization_id: Some(organization_id) }
}

/// Returns one page of the invitations, newest first; with `status`, only those with this status.
///
/// # Errors
/// The database fails.
pub async fn list(
    tenants: &Tenants,
    scope: &OrgScope,
    status: Option<InvitationStatus>,
    page: Page,
) -> Result<ListPage<Invitation>, Error> {
    let filter = Filter { organization_id: scope.organization_id(), status, now: tenants.clock.now() };
    let mut tx = tenants.db().read().await?;
    let (total, rows) = listing::list(&mut tx, &filter, page).await?;
    Ok(ListPage { rows, total })
}

/// Withdraws an open or expired invitation: its link stops working, its e-mail isn't sent if it is still
/// queued, and its address can be invited again.
///
/// # Errors
/// 404 and 403 as from the scope; 403 for a role that the caller can't grant; 409 if the invitation was
/// accepted.
pub fn withdraw<'a>(tenants: &'a Tenants, scope: &'a InvitationScope) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedInvitation { grantor, row }) = scope.lock_and_recheck(&mut tx, now).await?;
        membership::check_withdrawal(grantor.role, row.role)?;
        row.status.check_not_accepted()?;
        store::invitations::end(&mut held, row.id, None, now).await?;
        let event = event(scope.organization_id(), row.id, Action::InvitationWithdrawn);
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        tx.commit().await?;
        Ok(())
    })
}

/// An invitation that was just sent again.
#[derive(Clone, Debug)]
pub struct Resent {
    pub id: InvitationId,
    /// The guest's address, as entered.
    pub email: String,
    pub role: OrganizationRole,
    pub expires_at: Time,
}

/// Sends an open or expired invitation again, with a new link and the lifetime of a new invitation. The
/// earlier link stops working. The invitation keeps its sender and their message. If `expires_at` is set, the
/// invitation must still expire at this time. This is not the case if someone else has sent it again, or if a
/// form was submitted twice.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the invitation has another `expires_at`; 403 for a role that the
/// caller can't grant, or if the caller's own address isn't verified; 409 if the invitation was accepted, if
/// the guest is already a member, or if the invitation has expired and the limit of open invitations is
/// reached; 429 for too many e-mails.
pub fn resend<'a>(
    tenants: &'a Tenants,
    scope: &'a InvitationScope,
    expires_at: Option<Time>,
) -> BoxFuture<'a, Result<Uncommitted<Resent>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let organization_id = scope.organization_id();
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedInvitation { grantor, row }) = scope.lock_and_recheck(&mut tx, now).await?;
        if expires_at.is_some_and(|expires_at| expires_at != row.expires_at) {
            return Err(Code::PreconditionFailed.into());
        }
        membership::check_invitation(grantor, row.role)?;
        if row.role == OrganizationRole::Owner {
            scope.caller().require_proof()?;
        }
        if !accounts::store::users::is_verified(&mut held, scope.user_id()).await? {
            return Err(Code::EmailNotVerified.into());
        }
        row.status.check_not_accepted()?;
        if store::organization_members::has_address(&mut held, organization_id, &row.email_folded).await? {
            return Err(Code::AlreadyMember.into());
        }
        if row.status == InvitationStatus::Expired {
            let open = store::invitations::count_open(&mut held, organization_id, now).await?;
            counts::check_limit(&tenants.limits, CountedKind::Invitations, open)?;
        }
        let expires_at = expiry(now);
        store::invitations::renew(&mut held, row.id, expires_at).await?;
        let sender = Sender::person(scope.trail(), scope.user_id());
        tenants.outbox.post(&mut held, &sender, &draft(row.id), &row.email, now).await?;
        let event = event(organization_id, row.id, Action::InvitationResent);
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        let resent = Resent { id: row.id, email: row.email, role: row.role, expires_at };
        Ok(tenants.notify_after(Uncommitted::new(tx, resent)))
    })
}

/// The outcome of opening an invitation's link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkOutcome {
    /// The guest has become a member of the organization with this name.
    Joined(String),
    /// The guest was already a member of the organization with this name.
    AlreadyMember(String),
    /// No account has this address. The invitation stays open.
    NoAccount(String),
    /// The account's address isn't verified. The invitation stays open.
    Unverified(String),
    /// The address was verified with a token alone. The invitation stays open until the next login.
    AwaitsLogin(String),
}

/// Accepts the invitation of an e-mailed link, for the account with the invited address.
///
/// The link alone doesn't verify the address of an account. Someone else may have registered the account,
/// hoping that the guest opens the link. Only a verification with the account's password or a new password,
/// or a login after the verification, shows that the account is the guest's.
///
/// # Errors
/// 400 `invalid_token` if the link no longer works.
pub async fn accept_by_link(tenants: &Tenants, trail: &Trail, token: &str) -> Result<LinkOutcome, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let now = tenants.clock.now();
    let mut tx = tenants.db().read().await?;
    let invitation = store::invitations::by_token(&mut tx, token.hash(), now).await?.ok_or_else(refused)?;
    let user = accounts::store::users::by_email(&mut tx, &invitation.email_folded).await?;
    let Some(user) = user else {
        return Ok(LinkOutcome::NoAccount(invitation.email));
    };
    if user.email_verified_at.is_none() {
        return Ok(LinkOutcome::Unverified(invitation.email));
    }
    if accounts::store::users::awaits_login(&mut tx, user.id).await? {
        return Ok(LinkOutcome::AwaitsLogin(invitation.email));
    }
    drop(tx);
    let mut tx = tenants.db().write().await?;
    let outcome = accept(tenants, &mut tx, &trail.by(user.id), user.id, &invitation, now).await?;
    tx.commit().await?;
    match outcome {
        Some(Acceptance::Join(_)) => Ok(LinkOutcome::Joined(invitation.organization)),
        Some(Acceptance::AlreadyMember) => Ok(LinkOutcome::AlreadyMember(invitation.organization)),
        Some(Acceptance::Withdrawn) | None => Err(refused()),
    }
}

/// Accepts every open invitation for a user's address, after the user has proved that the account is theirs.
/// Runs in the transaction of this proof.
///
/// # Errors
/// The database fails.
pub async fn accept_all(
    tenants: &Tenants,
    tx: &mut Tx,
    trail: &Trail,
    (user_id, email_folded): (UserId, &str),
    now: Time,
) -> Result<(), Error> {
    for invitation in store::invitations::open_for_address(tx, email_folded, now).await? {
        accept(tenants, tx, trail, user_id, &invitation, now).await?;
    }
    Ok(())
}

/// Returns `true` if a folded address has an open invitation.
///
/// # Errors
/// The database fails.
pub async fn is_invited(tx: &mut Tx, email_folded: &str, now: Time) -> Result<bool, Error> {
    Ok(!store::invitations::open_for_address(tx, email_folded, now).await?.is_empty())
}

/// Ends the invitation, with or without a new membership. Returns `None` if it is no longer open.
async fn accept(
    tenants: &Tenants,
    tx: &mut Tx,
    trail: &Trail,
    user_id: UserId,
    invitation: &OpenInvitation,
    now: Time,
) -> Result<Option<Acceptance>, Error> {
    let organization_id = invitation.organization_id;
    let Some((mut held, roles)) = access::lock_invitation(tx, invitation, user_id, now).await? else {
        return Ok(None);
    };
    let InvitationRoles { offered, sender, guest } = roles;
    let outcome = membership::decide_acceptance(offered, sender, guest);
    let accepted_by = (outcome != Acceptance::Withdrawn).then_some(user_id);
    store::invitations::end(&mut held, invitation.id, accepted_by, now).await?;
    if let Acceptance::Join(role) = outcome {
        store::organization_members::insert(&mut held, organization_id, user_id, role, now).await?;
        let event = event(organization_id, invitation.id, Action::InvitationAccepted);
        trail::record(&mut held, trail, &event, now, &tenants.random).await?;
        let added = MemberAdded { organization_id, user_id, role: role.as_str() };
        events::emit(&mut held, &added, now, &tenants.random).await?;
    }
    Ok(Some(outcome))
}
