//! Access to API keys: it hangs on their project, and on who made the key.

use crate::app::App;
use crate::db::Tx;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, UserId};
use crate::roles::{OrganizationRole, ProjectAction};
use crate::rules::api_keys::Bounds;
use crate::store::api_keys::ApiKey;
use crate::store::standings::{self, WithSecret};

use super::projects::{self, Found, Held, Named, ProjectScope, Roles};
use super::{Access, AccessDoc, Call, Caller, HeldTx, Trail, manager};

/// A change of the API key in the path. Each takes the right to manage the project's keys.
///
/// A change or a rotation also takes at least the current roles of the person who made the key, because the key acts with
/// those. An end takes no more: everybody who manages keys can stop one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Another name, other permissions or restrictions.
    Update,
    /// A new secret.
    Rotate,
    /// Its end.
    Delete,
}

/// The right to do it.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key: ApiKey,
    access: Key,
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
    pub async fn hold<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, ApiKey), Error> {
        let project = &self.project;
        project.lock(tx).await?;
        let (project_id, api_key_id) = (Some(project.project_id()), Some(self.api_key_id()));
        let standing =
            standings::of_key(tx, project.organization_id(), project_id, project.user_id(), api_key_id)
                .await?;
        let held = project.held(tx, standing).await?.ok_or(Code::ApiKeyNotFound)?;
        self.check_again(tx, &held, &held.found).await?;
        Ok((HeldTx::new(tx), held.found))
    }

    /// The same, with what was kept of the key's current secret.
    ///
    /// # Errors
    /// As of [`KeyScope::hold`].
    pub async fn hold_with_secret<'t>(&self, tx: &'t mut Tx) -> Result<(HeldTx<'t>, Rotation), Error> {
        let project = &self.project;
        project.lock(tx).await?;
        let (project_id, api_key_id) = (Some(project.project_id()), Some(self.api_key_id()));
        let (organization_id, user_id) = (project.organization_id(), project.user_id());
        let standing =
            standings::of_key_and_secret(tx, organization_id, project_id, user_id, api_key_id).await?;
        let held = project.held(tx, standing).await?.ok_or(Code::ApiKeyNotFound)?;
        self.check_again(tx, &held, &held.found.key).await?;
        let (maker, holder) = (held.found.key.created_by, project.caller().holder());
        let is_owner = held.organization_role == Some(OrganizationRole::Owner);
        let rotation = Rotation {
            found: held.found,
            rotated_by: Some(holder).filter(|holder| *holder != maker),
            may_see_previous: holder == maker || is_owner,
        };
        Ok((HeldTx::new(tx), rotation))
    }

    /// Refuses an API key that would leave this one with wider restrictions or a longer life than its own.
    ///
    /// # Errors
    /// 403 `key_exceeds_caller`.
    pub fn may_hand_out(&self, bounds: &Bounds<'_>) -> Result<(), Error> {
        self.project.may_hand_out(bounds)
    }

    async fn check_again<T>(&self, tx: &mut Tx, held: &Held<T>, key: &ApiKey) -> Result<(), Error> {
        let roles = Roles { organization_role: held.organization_role, role: Some(held.grantor.role) };
        let (organization_id, project_id) = (self.organization_id(), self.project_id());
        self.access.check(tx, self.project.caller(), roles, (organization_id, project_id), key).await
    }
}

/// A key that gets a new secret.
pub struct Rotation {
    /// The key, with what was kept of its current secret.
    pub found: WithSecret,
    /// The person who rotates it, where that isn't its maker: the new secret is bound to their roles as well.
    pub rotated_by: Option<UserId>,
    /// Whether they may be told the current secret: its maker and the organization's owners.
    pub may_see_previous: bool,
}

impl Key {
    /// Refuses a key that is the caller itself, one whose maker has higher roles than the caller, and to a calling key the
    /// secret of one with wider restrictions than its own.
    async fn check(
        self,
        tx: &mut Tx,
        caller: &Caller,
        roles: Roles,
        (organization_id, project_id): (OrganizationId, ProjectId),
        key: &ApiKey,
    ) -> Result<(), Error> {
        if caller.key().is_some_and(|own| own.id == key.id) {
            let message =
                "An API key can't change, rotate or delete itself: use an access token or another key.";
            return Err(Error::new(Code::ManagementNotAllowed).message(message));
        }
        if self == Self::Delete {
            return Ok(());
        }
        if !(caller.is_one_person() && caller.user_id() == key.created_by) {
            let maker = projects::roles(tx, organization_id, Some(project_id), key.created_by).await?;
            if !roles.reach(maker) {
                let message = "The person who made this API key has a higher role than you, and the key acts with it: \
                               ask them or an owner, or delete the key.";
                return Err(Error::new(Code::InsufficientRole).message(message));
            }
        }
        if self == Self::Rotate { caller.may_hand_out(&key.bounds()) } else { Ok(()) }
    }
}

impl ApiKey {
    /// The restrictions that a calling key is held against.
    pub fn bounds(&self) -> Bounds<'_> {
        Bounds {
            allowed_ips: self.allowed_ips.as_ref(),
            rate_limit: self.rate_limit,
            expires_at: self.expires_at,
        }
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
        let mut found = Found::of(&mut tx, standing, organization_id, project_id, caller).await?;
        let api_key = found.found.take().ok_or(Code::ApiKeyNotFound)?;
        found.confine()?;
        found.caller.may_manage(app, call)?;
        let (action, roles) = (ProjectAction::ManageApiKeys, found.roles);
        let project = found.admit(action, |role| role.allows(action), Trail::of(call))?;
        let place = (organization_id, project.project_id());
        self.check(&mut tx, project.caller(), roles, place, &api_key).await?;
        Ok(KeyScope { project, api_key, access: *self })
    }
    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Update | Self::Rotate => "project: ManageApiKeys, with at least the maker's roles",
            Self::Delete => "project: ManageApiKeys",
        };
        AccessDoc::new(Some("bearer"), text)
    }
}
