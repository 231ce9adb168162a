//! SQL, one file per family of tables. The first argument of every function is a transaction.

mod amounts;
pub mod audit;
pub mod audit_state;
pub mod auto_top_ups;
pub mod balance_alerts;
pub mod budget_alerts;
pub mod budgets;
pub mod call_progress;
pub mod credit_notes;
pub mod credits;
pub mod first_credits;
pub mod invoices;
pub mod ledger;
pub mod months;
pub mod payment_pages;
pub mod reservations;
pub mod usage;
pub mod wallets;
