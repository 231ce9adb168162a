//! The limit on unknown credentials by client network.

use crate::Api;
use kernel::error::{Code, Error};
use kernel::limiter::{self, Subject};
use kernel::networks::Network;

use super::{Call, rate_limited};

/// Counts an unknown credential. Returns `error`, or 429 if the client network has tried too many. Only
/// unknown credentials are counted, so valid ones are never limited.
pub(super) fn count_bad_credential(api: &Api, call: &Call, error: Error) -> Error {
    let limits = &api.limits;
    if !limits.enabled || !matches!(error.code, Code::InvalidApiKey | Code::InvalidServiceToken) {
        return error;
    }
    let network = Network::of(call.address).to_string();
    let key = limiter::key_for("bad_credential", Subject::Text(&network));
    match api.limiter.check(key, limits.bad_credentials_per_minute, api.clock.now()) {
        Ok(_) => error,
        Err(limit) => rate_limited(limit),
    }
}
