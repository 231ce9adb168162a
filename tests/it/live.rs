//! What replicas hold in memory, and how they let go of it.

mod books;
mod feed;
mod rates;
mod sessions;
