//! Months, invoices, credits: from what was used to what is on paper.

mod books;
mod commands;
mod golden;
mod history;
mod jobs;
mod reading;
