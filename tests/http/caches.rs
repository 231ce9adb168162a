//! Replicas' caches, and how they are invalidated.

mod announced;
mod books;
mod feed;
mod keyring;
mod rates;
mod sessions;
