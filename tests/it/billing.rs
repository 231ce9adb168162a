//! Months, invoices, credits: from what was used to what is on paper.

mod books;
mod by_hand;
mod commands;
mod drifts;
mod edges;
mod endings;
mod golden;
mod golden_edges;
mod history;
mod jobs;
mod operating;
mod prices;
mod reading;
