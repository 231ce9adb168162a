//! An executor for SQLite and PostgreSQL.
//!
//! Queries have one SQL text for both: `sql("SELECT … WHERE id = $1").bind(id).optional::<Row>(tx)`. Reads
//! use [`Db::read`], which costs nothing and opens no transaction. Writes use [`Db::write`], a transaction
//! that is rolled back unless it is committed, even if its future is canceled. After an error in a
//! transaction, all further statements in it fail, on either database.
//!
//! To work on both databases, SQL uses parameters `$1…`, the types TEXT, BIGINT (booleans as 0 and 1) and
//! BLOB/BYTEA, `CAST(SUM(x) AS BIGINT)`, and `CAST($1 AS BIGINT)` where the context of a parameter doesn't
//! determine its type. SQL uses neither `now()` nor ILIKE.
//!
//! - [`Db`] opens a database, begins transactions, backs up and migrates; [`Tx`] runs statements.
//! - [`Statement`] is an SQL statement with its parameter values. A [`Row`] of the result is read by
//!   [`FromRow`].
//! - [`sized`] builds statements that write many rows; [`Page`] and [`window`] are for paginated lists.
//! - [`Uncommitted`] is the result of an operation that its caller commits.
//! - [`Error`] has the few kinds that callers distinguish, including the violated [`Constraint`].
//! - [`Change`] is a change that a transaction announces to the replicas, which cache data.
//!
//! The drivers are in `sqlite` and `postgres`; no other crate uses them. The steps of the schema are in
//! `migrations`, one file per step, or one per step and database.

mod change;
mod connections;
mod constraint;
mod database;
mod error;
mod migrate;
mod page;
mod postgres;
mod running;
pub mod sized;
mod sqlite;
mod statement;
mod tx;
mod uncommitted;
mod value;
pub mod window;

pub use change::Change;
pub use connections::Connections;
pub use constraint::{Constraint, Reference};
pub use database::{Db, Settings};
pub use error::Error;
pub use migrate::{MigrateError, MigrationReport, newest_schema};
pub use page::{Page, contains_pattern};
pub use postgres::url::trusts_by_default;
pub use sqlite::Backup;
pub use statement::{Lock, SERVER_TIME, Statement, sql};
pub use tx::Tx;
pub use uncommitted::Uncommitted;
pub use value::{FromRow, FromValue, Row, Value};
