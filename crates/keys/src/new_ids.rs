//! Ids of keys that a form will create. If a form is sent twice, as browsers do after Back, only one key is
//! created: the id is sealed for the person and the project, and only one key can have it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::error::Error;
use kernel::ids::ApiKeyId;
use tenants::access::ProjectScope;

use super::Keys;

/// Returns the sealed id of a key that this person may create in this project.
///
/// # Errors
/// No master key exists.
pub fn seal(keys: &Keys, scope: &ProjectScope) -> Result<String, Error> {
    let id = ApiKeyId::new(keys.clock.now(), &keys.random).to_string();
    Ok(URL_SAFE_NO_PAD.encode(keys.sealer.seal(id.as_bytes(), &owner(scope), &keys.random)?))
}

/// Returns the id from a sealed one; `None` if it was sealed for another person or project, or under a master
/// key that no longer exists.
pub fn open(keys: &Keys, scope: &ProjectScope, sealed: &str) -> Option<ApiKeyId> {
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let id = keys.sealer.open(&sealed, &owner(scope)).ok()?;
    ApiKeyId::parse(std::str::from_utf8(&id).ok()?)
}

fn owner(scope: &ProjectScope) -> String {
    format!("a new API key of {} by {}", scope.project_id(), scope.user_id())
}
