//! Operations on projects.

use crate::access::{LockedOrganization, LockedProject, OrgScope, ProjectScope};
use crate::roles::{ProjectRole, Visibility, effective_project_role};
use crate::rules::counts::{self, CountedKind};
use crate::rules::visibility::check_visibility;
use crate::store;
use db::{Tx, Uncommitted};
use events::EventType;
use events::data::{ApiKeyChange, ApiKeyChanged};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{OrganizationId, ProjectId};
use kernel::money::Ppm;
use kernel::naming::Name;
use kernel::patch::Patch;
use kernel::version::Expected;
use mail::posting::Draft;

use crate::store::projects::Changes;
use crate::store::projects::listing::{self, Filter};
use crate::store::standings::ProjectAndOrganization;
use accounts::store::users::Audience;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event};

use super::{ListPage, Search, Tenants};

pub use crate::store::projects::listing::ListedProject;
pub use crate::store::projects::{Project, ProjectDetail};

/// A new project.
#[derive(Clone, Debug)]
pub struct New {
    /// Unique in the organization.
    pub name: Name,
    pub description: Option<String>,
    /// The settings. The caller has checked them against the catalog.
    pub settings: Settings,
    pub visibility: Visibility,
}

/// The default settings of a project's model calls.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id of a model in the catalog.
    pub model: Option<String>,
    /// The maximum number of tokens of one request.
    pub max_tokens: Option<i64>,
    pub temperature: Option<Ppm>,
}

/// Creates a project, and returns it. The caller becomes its owner.
///
/// # Errors
/// 404 and 403 as from the scope; 409 if the organization already has a project with this name, or has
/// reached the limit of projects.
pub async fn create(tenants: &Tenants, scope: &OrgScope, new: New) -> Result<Uncommitted<Project>, Error> {
    let now = tenants.clock.now();
    let row = Project {
        id: ProjectId::new(now, &tenants.random),
        organization_id: scope.organization_id(),
        name: new.name.display,
        description: new.description,
        model: new.settings.model,
        max_tokens: new.settings.max_tokens,
        temperature: new.settings.temperature,
        visibility: new.visibility,
        created_at: now,
        updated_at: now,
    };
    let mut tx = tenants.db().write().await?;
    let (mut held, LockedOrganization { found, .. }) = scope.lock_and_recheck(&mut tx).await?;
    check_visibility(row.visibility, found.organization.allow_public_projects)?;
    counts::check_limit(&tenants.limits, CountedKind::Projects, found.projects_count)?;
    store::projects::insert(&mut held, &row, &new.name.folded, scope.user_id()).await?;
    store::project_members::insert(&mut held, row.id, scope.user_id(), ProjectRole::Owner, now).await?;
    let event = Event {
        action: Action::ProjectCreated,
        target: row.id.to_string(),
        organization_id: Some(row.organization_id),
    };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    Ok(Uncommitted::new(tx, row))
}

/// Returns one page of the projects that the caller can view, newest first, each with the caller's effective
/// role. For an API key, this is only its own project.
///
/// # Errors
/// The database fails.
pub async fn list(
    tenants: &Tenants,
    scope: &OrgScope,
    search: Search<ProjectRole>,
) -> Result<ListPage<ListedProject>, Error> {
    let filter = Filter {
        organization_id: scope.organization_id(),
        user_id: scope.user_id(),
        organization_role: scope.role(),
        only: scope.only_project(),
        search_folded: search.folded,
        role: search.role,
    };
    let mut tx = tenants.db().read().await?;
    let (total, mut rows) = listing::list(&mut tx, &filter, search.page).await?;
    for row in &mut rows {
        row.role = effective_project_role(Some(scope.role()), row.role, row.open_to_organization);
    }
    Ok(ListPage { rows, total })
}

/// Returns the project with its counts.
///
/// # Errors
/// 404 if the project was removed after the scope was admitted.
pub fn read<'a>(
    tenants: &'a Tenants,
    scope: &'a ProjectScope,
) -> BoxFuture<'a, Result<ProjectDetail, Error>> {
    Box::pin(async move {
        let mut tx = tenants.db().read().await?;
        let project = store::projects::detail(&mut tx, scope.organization_id(), scope.project_id()).await?;
        Ok(project.ok_or(Code::ProjectNotFound)?)
    })
}

/// A change of a project; `None` keeps a value.
#[derive(Clone, Debug)]
pub struct Update {
    pub name: Option<Name>,
    pub description: Patch<String>,
    /// `Clear` removes all settings.
    pub settings: Patch<SettingsPatch>,
    pub visibility: Option<Visibility>,
}

/// A change of a project's settings.
#[derive(Clone, Debug)]
pub struct SettingsPatch {
    /// The id of a model in the catalog.
    pub model: Patch<String>,
    /// The maximum number of tokens of one request.
    pub max_tokens: Patch<i64>,
    pub temperature: Patch<Ppm>,
}

impl Update {
    /// Returns the changed project.
    fn onto(self, before: &Project) -> Project {
        let mut row = before.clone();
        row.name = self.name.map_or(row.name, |name| name.display);
        row.description = self.description.onto(row.description);
        row.visibility = self.visibility.unwrap_or(row.visibility);
        match self.settings {
            Patch::Keep => {}
            Patch::Clear => (row.model, row.max_tokens, row.temperature) = (None, None, None),
            Patch::Set(settings) => {
                row.model = settings.model.onto(row.model);
                row.max_tokens = settings.max_tokens.onto(row.max_tokens);
                row.temperature = settings.temperature.onto(row.temperature);
            }
        }
        row
    }
}

/// Changes the project, and returns the changed project. A change to the same values doesn't change
/// `updated_at`. `check` checks the new default model and token limit against the catalog.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the project doesn't have the expected version; the error of `check`;
/// 409 if the organization has another project with this name.
pub async fn update(
    tenants: &Tenants,
    scope: &ProjectScope,
    expected: &Expected,
    update: Update,
    check: impl Fn(Option<&str>, Option<i64>) -> Result<(), Error> + Send,
) -> Result<ProjectDetail, Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), tenants.clock.now());
    let mut tx = tenants.db().write().await?;
    let (mut held, LockedProject { found, .. }) = scope.lock_and_recheck(&mut tx).await?;
    expected.check(found.detail.version()?)?;
    let ProjectDetail { project: before, members_count, api_keys_count } = found.detail;
    check_visibility(update.visibility.unwrap_or(Visibility::Private), found.allow_public_projects)?;
    let name_folded = update.name.as_ref().map(|name| name.folded.clone());
    let mut row = update.onto(&before);
    if (&row.model, row.max_tokens) != (&before.model, before.max_tokens) {
        check(row.model.as_deref(), row.max_tokens)?;
    }
    if row != before {
        row.updated_at = now;
        let changes = Changes { row: &row, name_folded: name_folded.as_deref() };
        store::projects::update(&mut held, &changes).await?;
        let (action, target) = (Action::ProjectChanged, id.to_string());
        let event = Event { action, target, organization_id: Some(organization_id) };
        trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    }
    tx.commit().await?;
    Ok(ProjectDetail { project: row, members_count, api_keys_count })
}

/// Deletes the project with its keys and memberships. Its usage records are kept. The other members are
/// notified by e-mail.
///
/// # Errors
/// 404 and 403 as from the scope; 412 if the project doesn't have the expected version.
pub async fn delete(tenants: &Tenants, scope: &ProjectScope, expected: &Expected) -> Result<(), Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), tenants.clock.now());
    let mut tx = tenants.db().write().await?;
    let (mut held, LockedProject { found, .. }) = scope.lock_and_recheck(&mut tx).await?;
    expected.check(found.detail.version()?)?;
    let audience = store::project_members::audience(&mut held, id, scope.user_id()).await?;
    let Audience { by, others } = audience.ok_or(Code::InsufficientRole)?;
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::ProjectDeleted, about: about(&found, by) };
    tenants.outbox.post_all(&mut held, &sender, &draft, others, now).await?;
    let (action, target) = (Action::ProjectDeleted, id.to_string());
    let event = Event { action, target, organization_id: Some(organization_id) };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    emit_deleted_keys(tenants, &mut held, organization_id, id, now).await?;
    store::projects::remove(&mut held, organization_id, id, now).await?;
    tx.commit().await?;
    tenants.outbox.notify_one();
    Ok(())
}

/// Queues an event for each key of a project that is about to be deleted, if a webhook subscribes to them.
async fn emit_deleted_keys(
    tenants: &Tenants,
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
    now: Time,
) -> Result<(), Error> {
    if !events::has_receivers(tx, organization_id, EventType::ApiKeyDeleted).await? {
        return Ok(());
    }
    for api_key_id in store::projects::api_keys(tx, project_id).await? {
        let change = ApiKeyChange::Deleted;
        let deleted = ApiKeyChanged { change, organization_id, project_id, api_key_id };
        events::emit(tx, &deleted, now, &tenants.random).await?;
    }
    Ok(())
}

/// Returns the details of an e-mail about this project and the acting user's username.
pub(super) fn about(project: &ProjectAndOrganization, by: String) -> About {
    About {
        organization: Some(project.organization_name.clone()),
        project: Some(project.detail.project.name.clone()),
        by: Some(by),
        ..About::default()
    }
}
