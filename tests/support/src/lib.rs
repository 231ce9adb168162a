//! Support for tests of whole programs: databases, servers in this process and as separate processes,
//! clients, and fakes of external systems (Stripe, mail servers, identity providers, inference servers).

pub use database::Database;
pub use support_macros::{on_each_database, on_postgres, on_sqlite};

pub mod authenticator;
pub mod billed;
pub mod books;
pub mod chance;
pub mod console;
pub mod csv;
pub mod database;
pub mod documented;
pub mod faketime;
pub mod http;
pub mod identity_provider;
pub mod llamacpp;
pub mod node;
pub mod outage;
pub mod pooler_stories;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod receiver;
pub mod refusals;
pub mod replica;
pub mod replicas;
pub mod security_key;
pub mod seeds;
pub mod shop;
pub mod smtp;
pub mod stripe;
pub mod transcript;
pub mod twin;
pub mod upstream;
pub mod webhooks;
pub mod world;
