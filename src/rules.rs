//! What is decided: pure functions over values, no input or output.

pub use kernel::{addresses, naming, networks, rates, usernames};

pub mod allowed_ips;
pub mod api_keys;
pub mod audit;
pub mod books;
pub mod counts;
pub mod credit_limits;
pub mod currencies;
pub mod discounts;
pub mod events;
pub mod invoicing;
pub mod key_bounds;
pub mod membership;
pub mod password;
pub mod password_changes;
pub mod periods;
pub mod permissions;
pub mod phones;
pub mod project_membership;
pub mod projects;
pub mod proxies;
pub mod rate_pool;
pub mod rating;
pub mod reserving;
pub mod rotation;
pub mod settlement;
pub mod throttling;
pub mod usage_groups;
pub mod visibility;
