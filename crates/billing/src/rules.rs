//! The rules of billing, as pure functions.

pub mod audit;
pub mod balances;
pub mod books;
pub mod budgets;
pub mod call_cost;
pub mod call_price;
pub mod call_rest;
pub mod credit_limits;
pub mod events;
pub mod focus;
pub mod invoicing;
pub mod movements;
pub mod periods;
pub mod rating;
pub mod settlement;
pub mod usage_groups;
