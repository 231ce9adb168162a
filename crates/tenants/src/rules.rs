//! Pure rules: no input, no output.

pub mod allowed_ips;
pub mod counts;
pub mod key_bounds;
pub mod membership;
pub mod project_membership;
pub mod projects;
pub mod visibility;
