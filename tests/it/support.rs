//! Helpers for the tests.

pub mod authenticator;
pub mod billed;
pub mod books;
pub mod chance;
pub mod console;
pub mod csv;
pub mod documented;
pub mod faketime;
pub mod http;
pub mod identity_provider;
pub mod llamacpp;
pub mod node;
pub mod outage;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod receiver;
pub mod replica;
pub mod replicas;
pub mod security_key;
pub mod smtp;
pub mod twin;
pub mod upstream;
pub mod webhooks;
pub mod world;
