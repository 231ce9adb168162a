//! Payments: what is paid at Stripe, by a fake of it, is in the books once.

mod buying;
mod cards;
mod disputes;
mod inbound;
mod invoices;
mod off;
mod refunds;
mod shop;
mod top_ups;
mod verification;
