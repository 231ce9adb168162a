//! Pure rules, without I/O.

pub mod allowed_ips;
pub mod counts;
pub mod groups;
pub mod invitations;
pub mod key_bounds;
pub mod membership;
pub mod project_membership;
pub mod projects;
pub mod sign_ons;
pub mod visibility;
