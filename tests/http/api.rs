//! Endpoints of the API, by subject.

mod account;
mod api_keys;
mod audit_log;
mod auth;
mod calls;
mod entity_tags;
mod idempotency;
mod invitations;
mod members;
mod models;
mod organizations;
mod project_members;
mod projects;
mod usage;
mod usage_reports;
