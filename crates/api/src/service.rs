//! The handlers of the service listener, for inference servers and proxies (docs/contract/service.md). Their
//! replies have no envelope.

pub mod authorize;
pub mod decision;
pub mod forward_auth;
pub mod health;
pub mod metrics;
pub mod reservations;
pub mod usage;

pub use authorize::authorize;
pub use forward_auth::forward_auth;
pub use health::{healthz, readyz};
pub use metrics::metrics;
pub use usage::usage;
