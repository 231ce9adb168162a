//! How large a request may be and how long its body may take to come, by path.

use std::time::Duration;

use crate::live::body_budget::Quarters;

/// The most bytes of a body below `/v1/auth`, and of an HTML form.
pub const MAX_AUTH_BODY_BYTES: usize = 16 * 1024;
/// The most bytes of a body of a management call.
pub const MAX_MANAGEMENT_BODY_BYTES: usize = 256 * 1024;
/// The most bytes of a body on the service listener.
pub const MAX_SERVICE_BODY_BYTES: usize = 1024 * 1024;
/// The most parameters of a query string, and fields of an HTML form.
pub const MAX_PAIRS: usize = 256;
/// The longest that the body of a call outside of the service listener may take to come, whatever the configuration
/// allows: a credential is looked at before the body.
const MAX_BODY_TIME: Duration = Duration::from_secs(10);

/// The limits for the body of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimit {
    /// The most bytes.
    pub max_bytes: usize,
    /// The longest that it may take to come; the configuration may say less.
    pub max_time: Duration,
    /// How much of the budget for unfinished bodies it may find taken.
    quarters: Quarters,
}

impl BodyLimit {
    /// The limit of a route's path.
    pub fn of(path: &str) -> Self {
        if path.starts_with("/service/") {
            return Self {
                max_bytes: MAX_SERVICE_BODY_BYTES,
                max_time: Duration::MAX,
                quarters: Quarters::Four,
            };
        }
        let is_auth = path.starts_with("/v1/auth/");
        let max_bytes = if is_auth { MAX_AUTH_BODY_BYTES } else { MAX_MANAGEMENT_BODY_BYTES };
        Self { max_bytes, max_time: MAX_BODY_TIME, quarters: Quarters::Three }
    }

    /// How much of the budget may be taken for a body of this size to find room. Inference servers come before the public,
    /// and logins before the large bodies that anybody with an account can send.
    pub fn quarters(&self, bytes: usize) -> Quarters {
        match self.quarters {
            Quarters::Three if bytes > MAX_AUTH_BODY_BYTES => Quarters::Two,
            quarters => quarters,
        }
    }

    /// The limit of an HTML form.
    pub fn form() -> Self {
        Self { max_bytes: MAX_AUTH_BODY_BYTES, max_time: MAX_BODY_TIME, quarters: Quarters::Three }
    }
}

#[cfg(test)]
mod tests {
    use crate::input::limits::*;
    use crate::routes::{self, Listener};

    #[test]
    fn each_route_has_the_limit_of_its_kind() {
        for route in routes::table() {
            let limit = BodyLimit::of(route.path);
            let due = match route.listener {
                Listener::Service if route.path.starts_with("/service/") => 1024 * 1024,
                _ if route.path.starts_with("/v1/auth/") => 16 * 1024,
                _ => 256 * 1024,
            };
            assert_eq!(limit.max_bytes, due, "{route:?}");
            let is_public = route.listener != Listener::Service;
            assert_eq!(
                limit.max_time <= Duration::from_secs(10),
                is_public || due < 1024 * 1024,
                "{route:?}"
            );
        }
        assert_eq!(BodyLimit::form().max_bytes, 16 * 1024);
    }
}
