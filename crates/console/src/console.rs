//! The handle of the console's handlers.

use std::ops::Deref;

use api::Api;
use api::state::Parts;

/// The handle of the console. It contains the handles of all subjects, and is cheap to clone.
#[derive(Clone)]
pub struct Console(Api);

impl Console {
    /// Returns the link to a page. `path` is the part after `/console`. If the public URL has a path, the
    /// link begins with that path.
    pub fn link(&self, path: &str) -> String {
        format!("{}/console{path}", self.base())
    }

    /// Returns the path of the public URL, without a trailing slash; usually empty.
    pub fn base(&self) -> &str {
        let host = self.0.public_url.split_once("://").map_or("", |(_, rest)| rest);
        let path = host.find('/').and_then(|start| host.get(start..));
        path.unwrap_or_default().trim_end_matches('/')
    }

    /// Returns `true` if users reach the console over HTTPS.
    pub fn is_secure(&self) -> bool {
        self.0.public_url.starts_with("https://")
    }
}

impl From<Api> for Console {
    fn from(api: Api) -> Self {
        Self(api)
    }
}

impl Deref for Console {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
