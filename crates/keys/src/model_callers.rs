//! The caller of a model, determined by the credential that an inference server or a proxy received.
//!
//! The caller of the listener is someone else, so no scope exists. The credential and a user's role are still
//! checked.

use std::sync::Arc;

use crate::store::api_keys::LiveKey;
use accounts::Session;
use accounts::jwt::TokenKind;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::{OrganizationId, ProjectId, SessionId, UserId};
use tenants::access::{self, SignedInBy};
use tenants::roles::ProjectAction;

use super::Keys;

/// The credential of a model call.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// An API key or an access token, as sent by the client.
    Bearer(&'a str),
    /// A user whose session the console has just checked.
    Person(Session),
}

impl Credential<'_> {
    /// Returns the credential of a user whose session has just been checked.
    pub fn person(user_id: UserId, session_id: SessionId) -> Self {
        Self::Person(Session { id: session_id, user_id })
    }
}

/// The caller of a model, and the project that the call is for.
#[derive(Clone, Debug)]
pub enum ModelCaller {
    /// An API key; its restrictions are not checked yet.
    KeyAction(Arc<LiveKey>),
    /// A user, for instance in a browser, whose role in the project allows model calls.
    Person {
        user_id: UserId,
        organization_id: OrganizationId,
        /// The project that the call is for.
        project_id: ProjectId,
    },
}

impl ModelCaller {
    /// Returns the organization that pays for the call.
    pub fn organization_id(&self) -> OrganizationId {
        match self {
            Self::KeyAction(key) => key.organization_id,
            Self::Person { organization_id, .. } => *organization_id,
        }
    }

    /// Returns the project that the call is for.
    pub fn project_id(&self) -> ProjectId {
        match self {
            Self::KeyAction(key) => key.project_id,
            Self::Person { project_id, .. } => *project_id,
        }
    }

    /// Returns the user, or the creator of the key.
    pub fn user_id(&self) -> UserId {
        match self {
            Self::KeyAction(key) => key.created_by,
            Self::Person { user_id, .. } => *user_id,
        }
    }

    /// Returns the key, if the caller is a key.
    pub fn key(&self) -> Option<&Arc<LiveKey>> {
        match self {
            Self::KeyAction(key) => Some(key),
            Self::Person { .. } => None,
        }
    }
}

/// Finds the caller of a model. A cached API key costs no query; a user's roles are read each time.
///
/// # Errors
/// 401 for an invalid credential, 403 if the key belongs to an organization or project other than the named
/// one. For a user: 400 without an organization and a project, 404 if they are unknown, 403 without the role.
pub async fn find(
    keys: &Keys,
    credential: Credential<'_>,
    organization: Option<&str>,
    project: Option<&str>,
    now: Time,
) -> Result<ModelCaller, Error> {
    let credential = match credential {
        Credential::Bearer(credential) => credential,
        Credential::Person(session) => {
            return Box::pin(find_person(keys, session, organization, project)).await;
        }
    };
    // Only access tokens contain a period. Another service's key has none, so its caller gets the error about
    // an unknown key.
    if !keys.is_key(credential) && credential.contains('.') {
        // The future is boxed to keep the common case, a call with a key, small.
        let person = async {
            let session = keys.accounts.live_session(credential, TokenKind::Access).await?;
            find_person(keys, session, organization, project).await
        };
        return Box::pin(person).await;
    }
    let key = keys.authenticate(credential, now).await?;
    let elsewhere = organization.is_some_and(|text| OrganizationId::parse(text) != Some(key.organization_id))
        || project.is_some_and(|text| ProjectId::parse(text) != Some(key.project_id));
    if elsewhere {
        return Err(Code::OutsideApiKeyScope.into());
    }
    Ok(ModelCaller::KeyAction(key))
}

async fn find_person(
    keys: &Keys,
    session: Session,
    organization: Option<&str>,
    project: Option<&str>,
) -> Result<ModelCaller, Error> {
    let user_id = session.user_id;
    let (Some(organization), Some(project)) = (organization, project) else {
        return Err(Code::ProjectRequired.into());
    };
    let organization_id = OrganizationId::parse(organization).ok_or(Code::OrganizationNotFound)?;
    let found = ProjectId::parse(project);
    let signed_in_by = SignedInBy {
        connection_id: keys.accounts.connection_of(session).await?,
        providers: Arc::clone(&keys.accounts.providers),
    };
    let mut tx = keys.db.read().await?;
    let roles = access::roles(&mut tx, organization_id, found, user_id).await?;
    let project_id = found.ok_or(Code::ProjectNotFound)?;
    if !roles.role.is_some_and(|role| role.allows(ProjectAction::CallModels)) {
        return Err(Code::InsufficientRole.into());
    }
    access::check_requirements(&mut tx, organization_id, user_id, &signed_in_by).await?;
    if keys.accounts.settings.sign_in.asks_everyone() {
        accounts::second_factor::require(&mut tx, user_id).await?;
    }
    Ok(ModelCaller::Person { user_id, organization_id, project_id })
}
