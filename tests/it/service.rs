//! The service listener: what inference servers and proxies ask before a model call.

mod authorize;
mod forward_auth;
mod proxies;
mod recording;
mod reservations;
mod restrictions;
