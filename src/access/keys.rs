//! Access to API keys: it hangs on their project.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};
use crate::roles::ProjectAction;
use crate::store::api_keys::ApiKey;
use crate::store::standings::{self, WithSecret};

use super::projects::{Found, Held, Named, ProjectScope};
use super::{Access, AccessDoc, Call, Trail, manager};

/// An action on the API key in the path.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key: ApiKey,
}

impl KeyScope {
    /// The project that the key belongs to.
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id()
    }
    /// The key's id.
    pub fn api_key_id(&self) -> ApiKeyId {
        self.api_key.id
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.project.organization_id()
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        self.project.trail()
    }

    /// Takes the organization's lock and asks again what the gate asked. Whoever removes the project or the organization
    /// holds it too, so that nobody waits in a circle for the rows of keys.
    ///
    /// # Errors
    /// 404 and 403, as at the gate.
    pub async fn hold(&self, tx: &mut Tx) -> Result<Held<ApiKey>, Error> {
        let project = &self.project;
        project.lock(tx).await?;
        let (project_id, api_key_id) = (Some(project.project_id()), Some(self.api_key_id()));
        let standing =
            standings::of_key(tx, project.organization_id(), project_id, project.user_id(), api_key_id)
                .await?;
        project.held(standing)?.ok_or(Code::ApiKeyNotFound.into())
    }

    /// The same, with what was kept of the key's current secret.
    ///
    /// # Errors
    /// As of [`KeyScope::hold`].
    pub async fn hold_with_secret(&self, tx: &mut Tx) -> Result<Held<WithSecret>, Error> {
        let project = &self.project;
        project.lock(tx).await?;
        let (project_id, api_key_id) = (Some(project.project_id()), Some(self.api_key_id()));
        let (organization_id, user_id) = (project.organization_id(), project.user_id());
        let standing =
            standings::of_key_and_secret(tx, organization_id, project_id, user_id, api_key_id).await?;
        project.held(standing)?.ok_or(Code::ApiKeyNotFound.into())
    }
}

impl Access for Key {
    type Scope = KeyScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<KeyScope, Error> {
        let caller = manager(app, call).await?;
        let Named { organization_id, project_id } = Named::of(call)?;
        let api_key_id = ApiKeyId::parse(call.path("key_id"));
        let (mut tx, user_id) = (app.db.read().await?, caller.user_id());
        let standing = standings::of_key(&mut tx, organization_id, project_id, user_id, api_key_id).await?;
        let mut found = Found::of(standing, organization_id, project_id, caller)?;
        let api_key = found.found.take().ok_or(Code::ApiKeyNotFound)?;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        let project = found.admit(self.0, |role| role.allows(self.0), Trail::of(call))?;
        Ok(KeyScope { project, api_key })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}
