//! Credentials that nobody has: a network that keeps trying them has to wait.

use crate::Api;
use kernel::error::{Code, Error};
use kernel::limiter;
use kernel::limiter::Subject;
use kernel::networks::Network;

use super::{Call, rate_limited};

/// Returns the answer to a credential that was refused with `error`: the same, or 429 when its network has tried too many that are
/// unknown. Only a miss is counted, so that a good credential never pays for others.
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
