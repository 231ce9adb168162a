//! POST `…/api-keys/{key_id}/rotate`

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use idempotency::Uncommitted;
use input::record;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::ApiKeyId;
use kernel::version::Expected;
use keys::Keys;
use keys::access::KeyScope;
use keys::api_keys::{self, Rotated};
use keys::fields::GraceSeconds;
use keys::rules::rotation::check_grace;
use web::input::Body;
use web::reply::{Enveloped, private};
use web::route::Operation;

record! {
    /// The options of a rotation.
    #[derive(Debug)]
    pub struct RotateApiKey in Api {
        /// The number of seconds for which the previous secret stays valid; by default the time in the
        /// server's configuration.
        pub grace_seconds: Option<GraceSeconds> = optional,
    }
    check(fields) {
        if let (Some(api), Some(Some(grace))) = (fields.state(), grace_seconds)
            && let Err(problem) = check_grace(grace.0, api.keys.settings.rotation_grace_hours)
        {
            fields.problem::<()>("grace_seconds", problem.code, problem.message);
        }
    }
}

/// The new secret of a key, and the end of the previous secret.
#[derive(Serialize, JsonSchema)]
pub struct RotatedApiKey {
    /// The key's id.
    id: ApiKeyId,
    /// The new secret.
    key: String,
    /// The previous secret. It is masked if the server stores only hashes of secrets, or if the caller is
    /// neither the key's creator nor an owner of the organization.
    previous_key: String,
    /// The time when the secret was rotated.
    rotation_date: Time,
    /// The time when the previous secret ends.
    grace_period_ends: Time,
}

pub const ROTATE: Operation = Operation {
    errors: &[Code::KeyExceedsCaller, Code::KeyExpired],
    example: r#"{
  "grace_seconds": 3600
}"#,
    ..Operation::new("rotate_api_key")
};

/// Rotate the secret of an API key.
///
/// The rest of the key doesn't change. The previous secret stays valid for `grace_seconds`. The default and
/// maximum is the grace period in the server's configuration; 0 ends the secret immediately.
pub async fn rotate(
    keys: Keys,
    scope: KeyScope,
    Body(body): Body<RotateApiKey>,
) -> Result<Uncommitted<Enveloped<RotatedApiKey>>, Error> {
    let grace_seconds = body.grace_seconds.map(|grace| grace.0);
    let rotated = api_keys::rotate(&keys, &scope, &Expected::Any, grace_seconds).await?;
    Ok(rotated.map(|Rotated { secret, previous, rotated_at, previous_ends_at }| {
        private(RotatedApiKey {
            id: scope.api_key_id(),
            key: secret.expose().to_owned(),
            previous_key: previous,
            rotation_date: rotated_at,
            grace_period_ends: previous_ends_at,
        })
    }))
}
