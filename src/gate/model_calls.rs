//! Who calls a model: the credential that an inference server or a proxy was given.
//!
//! It isn't the caller of the listener, so it makes no scope; but who it is, and whether a person's role is enough, is
//! asked here all the same.

use std::sync::Arc;

use crate::access;
use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::ids::{OrganizationId, ProjectId, UserId};
use crate::roles::ProjectAction;
use crate::secrets::jwt::TokenKind;
use crate::store::api_keys::LiveKey;

use super::live_session;

/// Who calls a model, and for whom.
#[derive(Clone, Debug)]
pub enum Calling {
    /// An API key; its restrictions aren't held against the call yet.
    Key(Arc<LiveKey>),
    /// A person with an access token, for instance in a browser, whose role in the project is enough.
    Person {
        /// Who it is.
        user_id: UserId,
        /// The tenant.
        organization_id: OrganizationId,
        /// The project that the call is for.
        project_id: ProjectId,
    },
}

impl Calling {
    /// Whose money it is.
    pub fn organization_id(&self) -> OrganizationId {
        match self {
            Self::Key(key) => key.organization_id,
            Self::Person { organization_id, .. } => *organization_id,
        }
    }

    /// The project that the call is for.
    pub fn project_id(&self) -> ProjectId {
        match self {
            Self::Key(key) => key.project_id,
            Self::Person { project_id, .. } => *project_id,
        }
    }

    /// The person, or who made the key.
    pub fn user_id(&self) -> UserId {
        match self {
            Self::Key(key) => key.created_by,
            Self::Person { user_id, .. } => *user_id,
        }
    }

    /// The key, when it is one.
    pub fn key(&self) -> Option<&Arc<LiveKey>> {
        match self {
            Self::Key(key) => Some(key),
            Self::Person { .. } => None,
        }
    }
}

/// Finds out who calls. A known API key costs no query; a person's roles are read each time.
///
/// # Errors
/// 401 for a credential that isn't good, 403 for a key of another place than what is named. For a person: 400 without an
/// organization and a project, 404 for unknown ones, 403 without the role.
pub async fn calling(
    app: &App,
    credential: &str,
    organization: Option<&str>,
    project: Option<&str>,
    now: Time,
) -> Result<Calling, Error> {
    // Nothing else that is sent as a credential has a point in it, so a foreign key is told that it is no key of ours.
    if !app.keys.is_key(credential) && credential.contains('.') {
        // Boxed: a key's call, the common one, is not made to carry what this needs.
        return Box::pin(person(app, credential, organization, project)).await;
    }
    let key = app.keys.authenticate(credential, now).await?;
    let elsewhere = organization.is_some_and(|text| OrganizationId::parse(text) != Some(key.organization_id))
        || project.is_some_and(|text| ProjectId::parse(text) != Some(key.project_id));
    if elsewhere {
        return Err(Code::OutsideApiKeyScope.into());
    }
    Ok(Calling::Key(key))
}

async fn person(
    app: &App,
    token: &str,
    organization: Option<&str>,
    project: Option<&str>,
) -> Result<Calling, Error> {
    let (user_id, _) = live_session(app, token, TokenKind::Access).await?;
    let (Some(organization), Some(project)) = (organization, project) else {
        return Err(Code::ProjectRequired.into());
    };
    let organization_id = OrganizationId::parse(organization).ok_or(Code::OrganizationNotFound)?;
    let found = ProjectId::parse(project);
    let mut tx = app.db.read().await?;
    let roles = access::roles(&mut tx, organization_id, found, user_id).await?;
    let project_id = found.ok_or(Code::ProjectNotFound)?;
    if !roles.role.is_some_and(|role| role.allows(ProjectAction::CallModels)) {
        return Err(Code::InsufficientRole.into());
    }
    Ok(Calling::Person { user_id, organization_id, project_id })
}
