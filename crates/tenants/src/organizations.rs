//! Organizations.

use crate::access::{CallerScope, HeldOrganization, OrgScope, PersonScope};
use crate::roles::OrganizationRole;
use crate::rules::counts::{self, Kind};
use crate::store;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use kernel::naming::Name;
use kernel::patch::Patch;
use mail::posting::Draft;

use crate::store::organizations::{Changes, Filter, NewOrganization};
use accounts::store::users::Audience;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event};

use super::{Closing, Founding, Listed, Search, Tenants};

pub use crate::store::organizations::{ListedOrganization, Organization, OrganizationDetail};

/// A new organization.
#[derive(Clone, Debug)]
pub struct New {
    /// Unique among those of the same maker.
    pub name: Name,
    /// A text about it.
    pub description: Option<String>,
    /// The role of new members.
    pub default_role: OrganizationRole,
    /// Whether projects may be public.
    pub allow_public_projects: bool,
}

/// An organization right after its creation, and its owner.
#[derive(Clone, Debug)]
pub struct Created {
    /// The organization.
    pub organization: Organization,
    /// The owner's address.
    pub email: String,
    /// The owner's name.
    pub username: String,
}

/// Makes an organization; the person becomes its owner.
///
/// # Errors
/// 409 when the person has one of this name, or as many as a person may have.
pub async fn create(tenants: &Tenants, scope: &PersonScope, new: New) -> Result<Created, Error> {
    let now = tenants.clock.now();
    let organization = Organization {
        id: OrganizationId::new(now, &tenants.random),
        name: new.name.display,
        description: new.description,
        default_role: new.default_role,
        allow_public_projects: new.allow_public_projects,
        created_at: now,
        updated_at: now,
    };
    let (id, user_id) = (organization.id, scope.user_id());
    let mut tx = tenants.db.write().await?;
    let (mut held, maker) = scope.hold(&mut tx).await?;
    counts::one_more(&tenants.limits, Kind::Organizations, maker.organizations)?;
    let row = NewOrganization { row: &organization, name_folded: &new.name.folded, created_by: user_id };
    store::organizations::insert(&mut held, &row).await?;
    let founding = Founding {
        organization_id: id,
        user_id,
        is_verified: maker.is_verified,
        had_credit: maker.had_credit,
        now,
    };
    (tenants.money.open)(&mut held, founding).await?;
    store::organization_members::insert(&mut held, id, user_id, OrganizationRole::Owner, now).await?;
    let event =
        Event { action: Action::OrganizationCreated, target: id.to_string(), organization_id: Some(id) };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    tx.commit().await?;
    Ok(Created { organization, email: maker.email, username: maker.username })
}

/// Returns one page of the organizations that the caller belongs to, newest first. An API key sees its own.
///
/// # Errors
/// The database can't say.
pub async fn list(
    tenants: &Tenants,
    scope: &CallerScope,
    search: Search<OrganizationRole>,
) -> Result<Listed<ListedOrganization>, Error> {
    let filter = Filter {
        user_id: scope.user_id(),
        only: scope.only_organization(),
        search_folded: search.folded,
        role: search.role,
    };
    let mut tx = tenants.db.read().await?;
    let total = store::organizations::count(&mut tx, &filter).await?;
    let rows = store::organizations::list(&mut tx, &filter, search.page).await?;
    Ok(Listed { rows, total })
}

/// Returns the organization with its counts, as it was at the gate.
pub fn read(scope: OrgScope) -> OrganizationDetail {
    scope.into_organization()
}

/// New values for an organization; what is left out stays.
#[derive(Clone, Debug)]
pub struct Update {
    /// Another name.
    pub name: Option<Name>,
    /// Another text.
    pub description: Patch<String>,
    /// Another role of new members.
    pub default_role: Option<OrganizationRole>,
    /// Whether projects may be public.
    pub allow_public_projects: Option<bool>,
}

/// Changes the organization and returns it as it is now. What changes nothing leaves `updated_at` as it was.
///
/// # Errors
/// 404 and 403 as at the gate; 409 when its maker has another one of this name.
pub async fn update(tenants: &Tenants, scope: &OrgScope, update: Update) -> Result<Organization, Error> {
    let (id, now) = (scope.organization_id(), tenants.clock.now());
    let mut tx = tenants.db.write().await?;
    let (mut held, HeldOrganization { row: before, .. }) = match &update.name {
        Some(_) => scope.hold_whole(&mut tx).await?,
        None => scope.hold(&mut tx).await?,
    };
    let mut row = before.clone();
    if let Some(name) = &update.name {
        row.name.clone_from(&name.display);
    }
    row.description = update.description.onto(row.description);
    row.default_role = update.default_role.unwrap_or(row.default_role);
    row.allow_public_projects = update.allow_public_projects.unwrap_or(row.allow_public_projects);
    if row != before {
        row.updated_at = now;
        let name_folded = update.name.as_ref().map(|name| name.folded.as_str());
        store::organizations::update(&mut held, &Changes { row: &row, name_folded }).await?;
        let event =
            Event { action: Action::OrganizationChanged, target: id.to_string(), organization_id: Some(id) };
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    }
    tx.commit().await?;
    Ok(row)
}

/// Deletes the organization with its projects, keys, memberships and invitations. What was used stays on record. Members are
/// told by mail, but for the person who did it.
///
/// # Errors
/// 404 and 403 as at the gate; 409 while money is owed on either side or calls are under way.
pub async fn delete(tenants: &Tenants, scope: &OrgScope) -> Result<(), Error> {
    let (id, now) = (scope.organization_id(), tenants.clock.now());
    let mut tx = tenants.db.write().await?;
    let (mut held, HeldOrganization { row, .. }) = scope.hold_whole(&mut tx).await?;
    let closing = Closing { organization_id: id, name: &row.name, trail: scope.trail(), now };
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
}
