//! Operations on organizations.

use crate::access::{CallerScope, LockedOrganization, OrgScope, PersonScope};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, CountedKind};
use crate::rules::membership::Grantor;
use crate::store;
use accounts::second_factor;
use db::{Tx, Uncommitted};
use kernel::addresses::PlainMailbox;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::OrganizationId;
use kernel::naming::Name;
use kernel::patch::Patch;
use kernel::version::Expected;
use mail::posting::Draft;

use crate::store::organizations::{Changes, Filter, NewOrganization, Requirements};
use accounts::store::users::Audience;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event};

use super::{ListPage, Search, TenantClosing, TenantOpening, Tenants};

pub use crate::store::organizations::{ListedOrganization, Organization, OrganizationDetail};

/// A new organization.
#[derive(Clone, Debug)]
pub struct New {
    /// Unique among the organizations with the same creator.
    pub name: Name,
    pub description: Option<String>,
    /// The role of new members.
    pub default_role: OrganizationRole,
    /// `true` if projects may be public.
    pub allow_public_projects: bool,
}

/// An organization that was just created, and its owner.
#[derive(Clone, Debug)]
pub struct Created {
    pub organization: Organization,
    /// The owner's address.
    pub email: String,
    /// The owner's username.
    pub username: String,
}

/// Creates an organization. The user becomes its owner.
///
/// # Errors
/// 409 if the user has already created an organization with this name, or has reached the limit of
/// organizations.
pub fn create<'a>(
    tenants: &'a Tenants,
    scope: &'a PersonScope,
    new: New,
) -> BoxFuture<'a, Result<Uncommitted<Created>, Error>> {
    Box::pin(async move {
        let now = tenants.clock.now();
        let organization = Organization {
            id: OrganizationId::new(now, &tenants.random),
            name: new.name.display,
            description: new.description,
            default_role: new.default_role,
            allow_public_projects: new.allow_public_projects,
            require_second_factor: false,
            require_sign_on: false,
            created_at: now,
            updated_at: now,
        };
        let (id, user_id) = (organization.id, scope.user_id());
        let mut tx = tenants.db().write().await?;
        let (mut held, creator) = scope.lock_and_recheck(&mut tx).await?;
        counts::check_limit(&tenants.limits, CountedKind::Organizations, creator.organizations)?;
        let row = NewOrganization { row: &organization, name_folded: &new.name.folded, created_by: user_id };
        store::organizations::insert(&mut held, &row).await?;
        let opening = TenantOpening {
            organization_id: id,
            user_id,
            mailbox: PlainMailbox::of(&creator.email),
            is_verified: creator.is_verified,
            had_credit: creator.had_credit,
            now,
        };
        (tenants.money.open)(&mut held, opening).await?;
        store::organization_members::insert(&mut held, id, user_id, OrganizationRole::Owner, now).await?;
        let event =
            Event { action: Action::OrganizationCreated, target: id.to_string(), organization_id: Some(id) };
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        let created = Created { organization, email: creator.email, username: creator.username };
        Ok(Uncommitted::new(tx, created))
    })
}

/// Returns one page of the organizations that the caller belongs to, newest first. For an API key, this is
/// only its own organization.
///
/// # Errors
/// The database fails.
pub fn list<'a>(
    tenants: &'a Tenants,
    scope: &'a CallerScope,
    search: Search<OrganizationRole>,
) -> BoxFuture<'a, Result<ListPage<ListedOrganization>, Error>> {
    Box::pin(async move {
        let filter = Filter {
            user_id: scope.user_id(),
            only: scope.only_organization(),
            search_folded: search.folded,
            role: search.role,
        };
        let mut tx = tenants.db().read().await?;
        let total = store::organizations::count(&mut tx, &filter).await?;
        let rows = store::organizations::list(&mut tx, &filter, search.page).await?;
        Ok(ListPage { rows, total })
    })
}

/// Returns the organization with its counts, as the scope found it.
pub fn read(scope: OrgScope) -> OrganizationDetail {
    scope.into_organization()
}

/// A change of an organization; `None` keeps a value.
#[derive(Clone, Debug)]
pub struct Update {
    pub name: Option<Name>,
    pub description: Patch<String>,
    pub default_role: Option<OrganizationRole>,
    pub allow_public_projects: Option<bool>,
    /// `true` if members need a second factor to access the organization.
    pub require_second_factor: Option<bool>,
    /// `true` if members must sign in with the organization's provider. [`crate::rules::sign_ons`] decides
    /// which members this applies to.
    pub require_sign_on: Option<bool>,
}

/// Changes the organization, and returns the changed organization. A change to the same values doesn't change
/// `updated_at`.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the organization doesn't have the expected version; 409 if its
/// creator has another organization with this name. To change the requirements for members, the caller must
/// be an owner with an access token (`insufficient_role`), must have recently confirmed their identity
/// (`reauthentication_required`), and needs a second factor to require one
/// (`second_factor_enrolment_required`). 409 `organization_has_no_provider` if a sign-on is required, but the
/// organization has no provider.
pub fn update<'a>(
    tenants: &'a Tenants,
    scope: &'a OrgScope,
    expected: &'a Expected,
    update: Update,
) -> BoxFuture<'a, Result<OrganizationDetail, Error>> {
    Box::pin(async move {
        let (id, now) = (scope.organization_id(), tenants.clock.now());
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedOrganization { found, grantor }) = match &update.name {
            Some(_) => scope.lock_for_removal_and_recheck(&mut tx).await?,
            None => scope.lock_and_recheck(&mut tx).await?,
        };
        expected.check(found.version()?)?;
        let OrganizationDetail { organization: before, members_count, projects_count } = found;
        let mut row = before.clone();
        if let Some(name) = &update.name {
            row.name.clone_from(&name.display);
        }
        row.description = update.description.onto(row.description);
        row.default_role = update.default_role.unwrap_or(row.default_role);
        row.allow_public_projects = update.allow_public_projects.unwrap_or(row.allow_public_projects);
        row.require_second_factor = update.require_second_factor.unwrap_or(row.require_second_factor);
        row.require_sign_on = update.require_sign_on.unwrap_or(row.require_sign_on);
        if row.requirements() != before.requirements() {
            check_may_require(
                tenants,
                &mut held,
                (scope, &grantor),
                before.requirements(),
                row.requirements(),
            )
            .await?;
        }
        if row != before {
            row.updated_at = now;
            let name_folded = update.name.as_ref().map(|name| name.folded.as_str());
            store::organizations::update(&mut held, &Changes { row: &row, name_folded }).await?;
            let event = Event {
                action: Action::OrganizationChanged,
                target: id.to_string(),
                organization_id: Some(id),
            };
            trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        }
        tx.commit().await?;
        Ok(OrganizationDetail { organization: row, members_count, projects_count })
    })
}

/// Checks that the caller may change the requirements for members.
async fn check_may_require(
    tenants: &Tenants,
    tx: &mut Tx,
    (scope, grantor): (&OrgScope, &Grantor<OrganizationRole>),
    before: Requirements,
    after: Requirements,
) -> Result<(), Error> {
    if grantor.role != OrganizationRole::Owner || grantor.is_key {
        let message = "Only an owner can change the requirements for members. API keys can't.";
        return Err(Error::new(Code::InsufficientRole).message(message));
    }
    scope.caller().require_proof()?;
    // Owners can't lock themselves out: they must already have a second factor, and never need a sign-on.
    if after.second_factor && !before.second_factor {
        second_factor::require(tx, scope.user_id()).await?;
    }
    if after.sign_on
        && !before.sign_on
        && tenants.providers.of_organization(scope.organization_id()).is_empty()
    {
        return Err(Code::OrganizationHasNoProvider.into());
    }
    Ok(())
}

/// Deletes the organization with its projects, keys, memberships and invitations. Its usage records are kept.
/// The other members are notified by e-mail.
///
/// # Errors
/// 404 and 403 as from the scope; `reauthentication_required` if a user hasn't recently confirmed their
/// identity; 412 if the organization doesn't have the expected version; 409 while either side owes money or
/// calls are in progress.
pub fn delete<'a>(
    tenants: &'a Tenants,
    scope: &'a OrgScope,
    expected: &'a Expected,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let (id, now) = (scope.organization_id(), tenants.clock.now());
        let mut tx = tenants.db().write().await?;
        let (mut held, LockedOrganization { found, .. }) =
            scope.lock_for_removal_and_recheck(&mut tx).await?;
        scope.caller().require_proof()?;
        expected.check(found.version()?)?;
        let row = found.organization;
        let closing = TenantClosing { organization_id: id, name: &row.name, trail: scope.trail(), now };
        (tenants.money.settle)(&mut held, closing).await?;
        let audience = store::organization_members::audience(&mut held, id, scope.user_id()).await?;
        let Audience { by, others } = audience.ok_or(Code::InsufficientRole)?;
        let about = About { organization: Some(row.name), by: Some(by), ..About::default() };
        let sender = Sender::person(scope.trail(), scope.user_id());
        let draft = Draft { template: Template::OrganizationDeleted, about };
        tenants.outbox.post_all(&mut held, &sender, &draft, others, now).await?;
        let event =
            Event { action: Action::OrganizationDeleted, target: id.to_string(), organization_id: Some(id) };
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
        store::organizations::remove(&mut held, id, now).await?;
        tx.commit().await?;
        tenants.outbox.notify_one();
        Ok(())
    })
}
