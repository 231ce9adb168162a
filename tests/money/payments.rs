//! Payments: each payment at a fake of Stripe is recorded in the books once.

mod announcing;
mod bounds;
mod brought_forward;
mod buying;
mod cards;
mod check;
mod currencies;
mod customers;
mod dispute_parts;
mod disputes;
mod failing_writes;
mod faults;
mod inbound;
mod invoices;
mod lost_events;
mod off;
mod pages;
mod refunds;
mod refusals;
mod taxed_top_ups;
mod taxes;
mod top_up_events;
mod top_ups;
mod unknown_statuses;
mod verification;
