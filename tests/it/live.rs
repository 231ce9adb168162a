//! What replicas hold in memory, and how they let go of it.

mod announced;
mod books;
mod feed;
mod keyring;
mod rates;
mod sessions;
mod totals;
