//! SQL, one file per table. Every function takes a transaction first. Rows that move money are written only
//! while the wallet is locked.

pub mod auto_top_ups;
pub mod customers;
pub mod disputes;
pub mod due;
pub mod findings;
pub mod payments;
pub mod refunds;
pub mod statements;
pub mod stripe_events;
pub mod stripe_tasks;
