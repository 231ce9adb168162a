//! POST `…/api-keys/{key_id}/rotate`

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::clock::Time;
use crate::error::Error;
use crate::ids::ApiKeyId;
use crate::input::Nothing;
use crate::keys_access::{KeyScope, Rotation};
use crate::reply::{Enveloped, private};
use crate::rules::rotation::grace_period_ends;
use crate::secrets::api_key::ApiKeySecret;
use crate::store;
use crate::store::audit_log::Action;

use super::{record, sealed_copy};

/// The new secret of a key, and how long the one before it stays good.
#[derive(Serialize, JsonSchema)]
pub struct RotatedApiKey {
    id: ApiKeyId,
    /// The new secret.
    key: String,
    /// The secret before. Only its beginning where the configuration keeps hashes only, and for callers that are neither
    /// the key's maker nor an owner of the organization.
    previous_key: String,
    rotation_date: Time,
    /// When the secret before ends.
    grace_period_ends: Time,
}

/// Gives the key a new secret; everything else about it stays. Of several at once each rotates what the one before has
/// left, so all of them are true when they are answered.
pub async fn rotate(app: App, scope: KeyScope, _: Nothing) -> Result<Enveloped<RotatedApiKey>, Error> {
    let id = scope.api_key_id();
    let prefix = &app.config.api_keys.prefix;
    let secret = ApiKeySecret::generate(prefix, &app.random);
    let sealed = sealed_copy(&app, &secret, id)?;
    let mut tx = app.db.write().await?;
    let (mut held, rotation) = scope.hold_with_secret(&mut tx).await?;
    let Rotation { found, rotated_by, may_see_previous } = rotation;
    let now = app.clock.now();
    let grace_ends = grace_period_ends(now, app.config.api_keys.rotation_grace_hours, found.key.expires_at)?;
    store::api_keys::retire_secrets(&mut held, id, grace_ends).await?;
    store::api_keys::insert_secret(&mut held, id, secret.hash(), sealed.as_deref(), rotated_by, now).await?;
    record(&app, &mut held, &scope, Action::ApiKeyRotated, now).await?;
    let previous_key = match found.sealed.filter(|_| may_see_previous && app.config.api_keys.keep_sealed) {
        Some(sealed) => opened(&app, &sealed, id)?,
        None => ApiKeySecret::masked(prefix),
    };
    tx.commit().await?;
    Ok(private(RotatedApiKey {
        id,
        key: secret.expose().to_owned(),
        previous_key,
        rotation_date: now,
        grace_period_ends: grace_ends,
    }))
}

fn opened(app: &App, sealed: &[u8], id: ApiKeyId) -> Result<String, Error> {
    String::from_utf8(app.sealer.open(sealed, &id.to_string())?).map_err(Error::internal)
}
