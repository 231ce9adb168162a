//! Projects of an organization.

use crate::access::{Held, HeldOrganization, OrgScope, ProjectScope};
use crate::roles::{ProjectRole, Visibility, effective_project_role};
use crate::rules::counts::{self, Kind};
use crate::rules::visibility::check_visibility;
use crate::store;
use kernel::error::{Code, Error};
use kernel::ids::ProjectId;
use kernel::money::Ppm;
use kernel::naming::Name;
use kernel::patch::Patch;
use mail::posting::Draft;

use crate::store::projects::Changes;
use crate::store::projects::listing::{self, Filter};
use crate::store::standings::ProjectAndOrganization;
use accounts::store::users::Audience;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event};

use super::{Listed, Search, Tenants};

pub use crate::store::projects::listing::ListedProject;
pub use crate::store::projects::{Project, ProjectDetail};

/// A new project.
#[derive(Clone, Debug)]
pub struct New {
    /// Unique in the organization.
    pub name: Name,
    /// A text about it.
    pub description: Option<String>,
    /// The settings, checked against the catalog.
    pub settings: Settings,
    /// The people who can see it.
    pub visibility: Visibility,
}

/// What a project's model calls start from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A model of the catalog.
    pub model: Option<String>,
    /// Tokens of one request.
    pub max_tokens: Option<i64>,
    /// Sampling temperature.
    pub temperature: Option<Ppm>,
}

/// Makes a project and returns it; the caller becomes its owner.
///
/// # Errors
/// 404 and 403 as at the gate; 409 when the organization has one of this name, or as many as it may.
pub async fn create(tenants: &Tenants, scope: &OrgScope, new: New) -> Result<Project, Error> {
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
    let mut tx = tenants.db.write().await?;
    let (mut held, HeldOrganization { row: organization, projects_count, .. }) = scope.hold(&mut tx).await?;
    check_visibility(row.visibility, organization.allow_public_projects)?;
    counts::one_more(&tenants.limits, Kind::Projects, projects_count)?;
    store::projects::insert(&mut held, &row, &new.name.folded, scope.user_id()).await?;
    store::project_members::insert(&mut held, row.id, scope.user_id(), ProjectRole::Owner, now).await?;
    let event = Event {
        action: Action::ProjectCreated,
        target: row.id.to_string(),
        organization_id: Some(row.organization_id),
    };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    tx.commit().await?;
    Ok(row)
}

/// Returns one page of the projects that the caller can view, newest first, each with the caller's effective role. An API key
/// sees its own.
///
/// # Errors
/// The database can't say.
pub async fn list(
    tenants: &Tenants,
    scope: &OrgScope,
    search: Search<ProjectRole>,
) -> Result<Listed<ListedProject>, Error> {
    let filter = Filter {
        organization_id: scope.organization_id(),
        user_id: scope.user_id(),
        organization_role: scope.role(),
        only: scope.only_project(),
        search_folded: search.folded,
        role: search.role,
    };
    let mut tx = tenants.db.read().await?;
    let (total, mut rows) = listing::list(&mut tx, &filter, search.page).await?;
    for row in &mut rows {
        row.role = effective_project_role(Some(scope.role()), row.role, row.open_to_organization);
    }
    Ok(Listed { rows, total })
}

/// Returns the project with its counts.
///
/// # Errors
/// 404 when it is gone since the gate.
pub async fn read(tenants: &Tenants, scope: &ProjectScope) -> Result<ProjectDetail, Error> {
    let mut tx = tenants.db.read().await?;
    let project = store::projects::detail(&mut tx, scope.organization_id(), scope.project_id()).await?;
    Ok(project.ok_or(Code::ProjectNotFound)?)
}

/// New values for a project; what is left out stays.
#[derive(Clone, Debug)]
pub struct Update {
    /// Another name.
    pub name: Option<Name>,
    /// Another text.
    pub description: Patch<String>,
    /// Other settings; null clears all of them.
    pub settings: Patch<SettingsPatch>,
    /// Other people who can see it.
    pub visibility: Option<Visibility>,
}

/// New values for a project's settings.
#[derive(Clone, Debug)]
pub struct SettingsPatch {
    /// A model of the catalog.
    pub model: Patch<String>,
    /// Tokens of one request.
    pub max_tokens: Patch<i64>,
    /// Sampling temperature.
    pub temperature: Patch<Ppm>,
}

impl Update {
    /// The project after the patch.
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

/// Changes the project and returns it as it is now. What changes nothing leaves `updated_at` as it was. `check` holds the
/// default model and token limit that come of it against the catalog.
///
/// # Errors
/// 404 and 403 as at the gate; that of `check`; 409 when the organization has another project of this name.
pub async fn update(
    tenants: &Tenants,
    scope: &ProjectScope,
    update: Update,
    check: impl Fn(Option<&str>, Option<i64>) -> Result<(), Error> + Send,
) -> Result<Project, Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), tenants.clock.now());
    let mut tx = tenants.db.write().await?;
    let (mut held, Held { found, .. }) = scope.hold(&mut tx).await?;
    let before = found.detail.project;
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
    Ok(row)
}

/// Deletes the project with its keys and memberships. What was used stays on record. Members are told by mail, but for the
/// person who did it.
///
/// # Errors
/// 404 and 403 as at the gate.
pub async fn delete(tenants: &Tenants, scope: &ProjectScope) -> Result<(), Error> {
    let (organization_id, id, now) = (scope.organization_id(), scope.project_id(), tenants.clock.now());
    let mut tx = tenants.db.write().await?;
    let (mut held, Held { found, .. }) = scope.hold(&mut tx).await?;
    let audience = store::project_members::audience(&mut held, id, scope.user_id()).await?;
    let Audience { by, others } = audience.ok_or(Code::InsufficientRole)?;
    let sender = Sender::person(scope.trail(), scope.user_id());
    let draft = Draft { template: Template::ProjectDeleted, about: about(&found, by) };
    tenants.outbox.post_all(&mut held, &sender, &draft, others, now).await?;
    let (action, target) = (Action::ProjectDeleted, id.to_string());
    let event = Event { action, target, organization_id: Some(organization_id) };
    trail::record(&mut held, scope.trail(), &event, now, &tenants.random).await?;
    store::projects::remove(&mut held, organization_id, id, now).await?;
    tx.commit().await?;
    tenants.outbox.notify_one();
    Ok(())
}

/// What a mail about this project says of it, and of who did it.
pub(super) fn about(project: &ProjectAndOrganization, by: String) -> About {
    About {
        organization: Some(project.organization_name.clone()),
        project: Some(project.detail.project.name.clone()),
        by: Some(by),
        ..About::default()
    }
}
