//! What is decided: pure functions over values, no input or output.

pub mod addresses;
pub mod api_keys;
pub mod audit;
pub mod books;
pub mod currencies;
pub mod discounts;
pub mod events;
pub mod invoicing;
pub mod membership;
pub mod naming;
pub mod password;
pub mod periods;
pub mod phones;
pub mod project_membership;
pub mod projects;
pub mod rates;
pub mod rating;
pub mod reserving;
pub mod restrictions;
pub mod rotation;
pub mod settlement;
pub mod throttling;
pub mod usage_groups;
pub mod usernames;
