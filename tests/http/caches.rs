//! Replicas' caches and their invalidation.

mod announced;
mod books;
mod feed;
mod keyring;
mod rates;
mod sessions;
