//! SQL, one file per table. Every function takes a transaction first. What moves money is written by the holder of the
//! wallet's lock only.

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
