//! Ids of keys that a form will create. A form that is sent twice, as browsers do after Back, creates one key:
//! the id is sealed for the person and the project, and a key with it is created once.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::error::Error;
use kernel::ids::ApiKeyId;
use tenants::access::ProjectScope;

use super::Keys;

/// Returns the sealed id of a key that this person may create in this project.
///
/// # Errors
/// There is no master key.
pub fn seal(keys: &Keys, scope: &ProjectScope) -> Result<String, Error> {
    let id = ApiKeyId::new(keys.clock.now(), &keys.random).to_string();
    Ok(URL_SAFE_NO_PAD.encode(keys.sealer.seal(id.as_bytes(), &owner(scope), &keys.random)?))
}

/// Returns the id in a sealed one; `None` if it wasn't sealed for this person and project, or under a master key
/// that is gone.
pub fn open(keys: &Keys, scope: &ProjectScope, sealed: &str) -> Option<ApiKeyId> {
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let id = keys.sealer.open(&sealed, &owner(scope)).ok()?;
    ApiKeyId::parse(std::str::from_utf8(&id).ok()?)
}

fn owner(scope: &ProjectScope) -> String {
    format!("a new API key of {} by {}", scope.project_id(), scope.user_id())
}
