//! SQL, one file per family of tables. Every function takes a transaction first.

pub mod prices;
