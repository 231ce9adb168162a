//! Ids of keys that a form will create. The form contains the id, sealed for the user and the project. If the
//! form is submitted twice, for example after going back in the browser, only one key is created, because ids
//! are unique.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::error::Error;
use kernel::ids::ApiKeyId;
use tenants::access::ProjectScope;

use super::Keys;

/// Returns the sealed id of a key that this user may create in this project.
///
/// # Errors
/// No master key is configured.
pub fn seal(keys: &Keys, scope: &ProjectScope) -> Result<String, Error> {
    let id = ApiKeyId::new(keys.clock.now(), &keys.random).to_string();
    Ok(URL_SAFE_NO_PAD.encode(keys.sealer.seal(id.as_bytes(), &owner(scope), &keys.random)?))
}

/// Returns the id in a sealed id; `None` if it was sealed for another user or project, or with a master key
/// that is no longer configured.
pub fn open(keys: &Keys, scope: &ProjectScope, sealed: &str) -> Option<ApiKeyId> {
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let id = keys.sealer.open(&sealed, &owner(scope)).ok()?;
    ApiKeyId::parse(std::str::from_utf8(&id).ok()?)
}

fn owner(scope: &ProjectScope) -> String {
    format!("a new API key of {} by {}", scope.project_id(), scope.user_id())
}
