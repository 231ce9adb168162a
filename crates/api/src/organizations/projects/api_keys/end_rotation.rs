//! POST `…/api-keys/{key_id}/end-rotation`

use schemars::JsonSchema;
use serde::Serialize;

use idempotency::Uncommitted;
use kernel::error::{Code, Error};
use kernel::ids::ApiKeyId;
use keys::Keys;
use keys::access::KeyScope;
use keys::api_keys;
use web::input::NoInput;
use web::reply::{Enveloped, ok};
use web::route::Operation;

/// A key whose previous secret was ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EndedRotation {
    /// The key's id.
    id: ApiKeyId,
    /// A human-readable message.
    message: String,
}

pub const END_ROTATION: Operation =
    Operation { errors: &[Code::NoRotationPending], ..Operation::new("end_api_key_rotation") };

/// End the previous secret of a rotated API key.
///
/// The previous secret stops working on every replica within a second. The current secret stays valid.
pub async fn end_rotation(
    keys: Keys,
    scope: KeyScope,
    _: NoInput,
) -> Result<Uncommitted<Enveloped<EndedRotation>>, Error> {
    let ended = api_keys::end_rotation(&keys, &scope).await?;
    let message = "The previous secret is revoked and no longer works.".to_owned();
    Ok(ended.map(|()| ok(EndedRotation { id: scope.api_key_id(), message })))
}
