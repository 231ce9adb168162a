//! The SQL of the catalog, one file per group of tables. The transaction is the first parameter of every
//! function.

pub mod prices;
