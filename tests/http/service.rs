//! The service listener: authorization of model calls for inference servers and proxies.

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
mod retries;

/// The catalog of the tests of amounts, choices and repeated requests.
const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/http/service/catalog.toml");
