//! The endpoints, laid out like `src/api`.

mod api_keys;
mod auth;
mod members;
mod models;
mod organizations;
mod usage;
