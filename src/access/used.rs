//! Access to a project and to an API key that are read whole: with what they used, in the gate's own statement.

use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::ApiKeyId;
use crate::live::totals::{Reading, Subject};
use crate::roles::ProjectAction;
use crate::store::api_keys::ApiKey;
use crate::store::projects::ProjectDetail;
use crate::store::standings::{self, WithUse};

use super::projects::{Found, Named};
use super::{Access, AccessDoc, Call, Trail, manager};

/// An action on the project in the path, which is read at the gate with what it used.
#[derive(Clone, Copy, Debug)]
pub struct UsedProject(pub ProjectAction);

/// An action on the API key in the path, which is read at the gate with what it was used for.
#[derive(Clone, Copy, Debug)]
pub struct UsedKey(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct UsedScope<T> {
    found: T,
    usage: Reading,
}

impl<T> UsedScope<T> {
    /// The project or the key as it was at the gate, and its usage.
    pub fn into_parts(self) -> (T, Reading) {
        (self.found, self.usage)
    }
}

impl Access for UsedProject {
    type Scope = UsedScope<ProjectDetail>;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<Self::Scope, Error> {
        let caller = manager(app, call).await?;
        let Named { organization_id, project_id } = Named::of(call)?;
        let known = app.usage_totals.known(&app.feed.epochs, project_id.map(Subject::Project));
        let (mut tx, user_id) = (app.db.read().await?, caller.user_id());
        let standing =
            standings::project_with_use(&mut tx, organization_id, project_id, user_id, known.part()).await?;
        let mut found = Found::of(&mut tx, standing, organization_id, project_id, caller).await?;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        let WithUse { found: project, added } = found.found.take().ok_or(Code::ProjectNotFound)?;
        let subject = Subject::Project(found.project_id);
        found.admit(self.0, |role| role.allows(self.0), Trail::of(call))?;
        Ok(UsedScope { found: project.detail, usage: Reading { subject, organization_id, known, added } })
    }
    fn describe(&self) -> AccessDoc {
        super::Project(self.0).describe()
    }
}

impl Access for UsedKey {
    type Scope = UsedScope<ApiKey>;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<Self::Scope, Error> {
        let caller = manager(app, call).await?;
        let Named { organization_id, project_id } = Named::of(call)?;
        let api_key_id = ApiKeyId::parse(call.path("key_id"));
        let known = app.usage_totals.known(&app.feed.epochs, api_key_id.map(Subject::ApiKey));
        let (mut tx, user_id) = (app.db.read().await?, caller.user_id());
        let place = (organization_id, project_id, api_key_id);
        let standing = standings::key_with_use(&mut tx, place, user_id, known.part()).await?;
        let mut found = Found::of(&mut tx, standing, organization_id, project_id, caller).await?;
        let WithUse { found: api_key, added } = found.found.take().ok_or(Code::ApiKeyNotFound)?;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        found.admit(self.0, |role| role.allows(self.0), Trail::of(call))?;
        let subject = Subject::ApiKey(api_key.id);
        Ok(UsedScope { found: api_key, usage: Reading { subject, organization_id, known, added } })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}
