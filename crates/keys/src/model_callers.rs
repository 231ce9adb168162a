//! The caller of a model: the credential that an inference server or a proxy was given.
//!
//! That isn't the caller of the listener, so it makes no scope; but the credential is checked, and the role of a person, all
//! the same.

use std::sync::Arc;

use crate::store::api_keys::LiveKey;
use accounts::jwt::TokenKind;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, ProjectId, UserId};
use tenants::access;
use tenants::roles::ProjectAction;

use super::Keys;

/// The caller of a model, and the project that the call is for.
#[derive(Clone, Debug)]
pub enum ModelCaller {
    /// An API key; its restrictions aren't held against the call yet.
    Key(Arc<LiveKey>),
    /// A person with an access token, for instance in a browser, whose role in the project is enough.
    Person {
        /// The person.
        user_id: UserId,
        /// The tenant.
        organization_id: OrganizationId,
        /// The project that the call is for.
        project_id: ProjectId,
    },
}

impl ModelCaller {
    /// The organization that pays for the call.
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

    /// The person, or the maker of the key.
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

/// Finds the caller of a model. A known API key costs no query; a person's roles are read each time.
///
/// # Errors
/// 401 for a credential that isn't good, 403 for a key of another place than what is named. For a person: 400 without an
/// organization and a project, 404 for unknown ones, 403 without the role.
pub async fn find(
    keys: &Keys,
    credential: &str,
    organization: Option<&str>,
    project: Option<&str>,
    now: Time,
) -> Result<ModelCaller, Error> {
    // Nothing else that is sent as a credential has a point in it, so a foreign key is told that it is no key of ours.
    if !keys.is_key(credential) && credential.contains('.') {
        // Boxed: a key's call, the common one, is not made to carry what this needs.
        return Box::pin(person(keys, credential, organization, project)).await;
    }
    let key = keys.authenticate(credential, now).await?;
    let elsewhere = organization.is_some_and(|text| OrganizationId::parse(text) != Some(key.organization_id))
        || project.is_some_and(|text| ProjectId::parse(text) != Some(key.project_id));
    if elsewhere {
        return Err(Code::OutsideApiKeyScope.into());
    }
    Ok(ModelCaller::Key(key))
}

async fn person(
    keys: &Keys,
    token: &str,
    organization: Option<&str>,
    project: Option<&str>,
) -> Result<ModelCaller, Error> {
    let user_id = keys.accounts.live_session(token, TokenKind::Access).await?.user_id;
    let (Some(organization), Some(project)) = (organization, project) else {
        return Err(Code::ProjectRequired.into());
    };
    let organization_id = OrganizationId::parse(organization).ok_or(Code::OrganizationNotFound)?;
    let found = ProjectId::parse(project);
    let mut tx = keys.db.read().await?;
    let roles = access::roles(&mut tx, organization_id, found, user_id).await?;
    let project_id = found.ok_or(Code::ProjectNotFound)?;
    if !roles.role.is_some_and(|role| role.allows(ProjectAction::CallModels)) {
        return Err(Code::InsufficientRole.into());
    }
    Ok(ModelCaller::Person { user_id, organization_id, project_id })
}
