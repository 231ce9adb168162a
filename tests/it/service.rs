//! The service listener: what inference servers and proxies ask before a model call.

mod amounts;
mod authorize;
mod choices;
mod forward_auth;
mod persons;
mod proxies;
mod recording;
mod request_ids;
mod reservations;
mod restrictions;

/// The catalog of the stories about amounts, choices and repeated questions.
const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/it/service/catalog.toml");
