//! The check for organizations that require a sign-on with their provider.

use std::sync::Arc;

use crate::rules::sign_ons::{self, Standing};
use crate::store;
use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{ConnectionId, OrganizationId, UserId};
use sign_on::{Provider, Providers};

/// The sign-in method of a user.
#[derive(Clone)]
pub struct SignedInBy {
    /// The connection to a provider that opened the session; `None` if a password or a passkey opened it.
    pub connection_id: Option<ConnectionId>,
    /// The configured providers.
    pub providers: Arc<Providers>,
}

impl std::fmt::Debug for SignedInBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedInBy").field("connection_id", &self.connection_id).finish_non_exhaustive()
    }
}

impl SignedInBy {
    /// Returns the provider that the member must sign in with, if the organization requires sign-ons; `None`
    /// if the session already meets the requirement.
    ///
    /// # Errors
    /// The database fails.
    pub async fn missing(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        user_id: UserId,
    ) -> Result<Option<Arc<Provider>>, Error> {
        let providers = self.providers.of_organization(organization_id);
        if providers.is_empty() {
            return Ok(None);
        }
        let found =
            store::members::sign_on_standing(tx, organization_id, user_id, self.connection_id).await?;
        let Some(found) = found else { return Ok(None) };
        let standing = Standing {
            role: found.role,
            email: &found.email,
            managed_by: found.managed_by.as_deref(),
            issuer: found.issuer.as_deref(),
        };
        let settings = providers.iter().map(|provider| &provider.settings);
        let missing = sign_ons::missing(&standing, settings).map(|settings| settings.id.clone());
        Ok(missing.and_then(|id| providers.iter().find(|provider| provider.settings.id == id).cloned()))
    }

    /// Checks that the member doesn't have to sign in with the organization's provider.
    ///
    /// # Errors
    /// `sign_on_required`, with the provider's name in the message.
    pub(super) async fn check(
        &self,
        tx: &mut Tx,
        organization_id: OrganizationId,
        user_id: UserId,
    ) -> Result<(), Error> {
        match Box::pin(self.missing(tx, organization_id, user_id)).await? {
            Some(provider) => Err(refusal(&provider)),
            None => Ok(()),
        }
    }
}

fn refusal(provider: &Provider) -> Error {
    let message = format!(
        "You can access this organization only in the console, signed in with {}: open {} in a browser. \
         API keys keep working.",
        provider.settings.name,
        provider.sign_in_url()
    );
    Error::new(Code::SignOnRequired).message(message)
}
