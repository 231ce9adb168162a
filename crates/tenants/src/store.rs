//! The SQL of tenants, one file for each family of tables. Every function takes the transaction first.

pub mod audit_log;
pub mod invitations;
pub mod members;
pub mod navigation;
pub mod organization_members;
pub mod organizations;
pub mod project_members;
pub mod projects;
pub mod standings;
