//! POST `…/api-keys/{key_id}/rotate`

use schemars::JsonSchema;
use serde::Serialize;

use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::ApiKeyId;
use keys::Keys;
use keys::access::KeyScope;
use keys::api_keys::{self, Rotated};
use web::input::NoInput;
use web::reply::{Enveloped, private};

/// The new secret of a key, and when the previous one ends.
#[derive(Serialize, JsonSchema)]
pub struct RotatedApiKey {
    id: ApiKeyId,
    /// The new secret.
    key: String,
    /// The previous secret. Masked if the configuration keeps hashes only, and for callers who are neither
    /// the key's maker nor an owner of the organization.
    previous_key: String,
    rotation_date: Time,
    /// When the previous secret ends.
    grace_period_ends: Time,
}

/// Rotate the secret of an API key.
///
/// Everything else about the key stays.
pub async fn rotate(keys: Keys, scope: KeyScope, _: NoInput) -> Result<Enveloped<RotatedApiKey>, Error> {
    let Rotated { secret, previous, rotated_at, previous_ends_at } = api_keys::rotate(&keys, &scope).await?;
    Ok(private(RotatedApiKey {
        id: scope.api_key_id(),
        key: secret.expose().to_owned(),
        previous_key: previous,
        rotation_date: rotated_at,
        grace_period_ends: previous_ends_at,
    }))
}
