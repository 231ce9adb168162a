//! Running of statements in a transaction or a read handle.

use std::borrow::Cow;

use crate::statement::{Lock, SERVER_TIME, Statement, Want, sql};
use crate::tx::Tx;
use crate::{Error, FromRow};
use kernel::clock::Time;

impl Tx {
    /// Returns the current time of the database server; `None` on SQLite. A statement that returns
    /// [`SERVER_TIME`] saves the round trip.
    pub async fn server_time(&mut self) -> Result<Option<Time>, Error> {
        let (now,): (Option<Time>,) = sql(format!("SELECT {SERVER_TIME}")).one(self).await?;
        Ok(now)
    }
}

impl Statement {
    /// Runs the statement and returns the number of changed rows.
    pub async fn execute(self, tx: &mut Tx) -> Result<u64, Error> {
        Ok(tx.run(self, Want::Count).await?.changed)
    }

    /// Runs the statement together with the transaction's next one or its commit, where that saves a round
    /// trip. Its error is then returned by the later call. For statements without a result.
    pub async fn defer(self, tx: &mut Tx) -> Result<(), Error> {
        tx.defer(self).await
    }

    /// Runs the statement right before the commit, after every other statement of the transaction. For a row
    /// that all transactions of a kind write: they then wait for each other as briefly as possible, and can't
    /// deadlock. If it fails, nothing is committed.
    pub fn at_commit(self, tx: &mut Tx) {
        tx.at_commit.push(self);
    }

    /// Locks the rows that the statement finds, deferred like [`Statement::defer`]. Does nothing on SQLite,
    /// where a write transaction excludes all others from its beginning.
    pub async fn lock(mut self, tx: &mut Tx, lock: Lock) -> Result<(), Error> {
        self.text = Cow::Owned(format!("{} {}", self.text, lock.clause()));
        tx.lock(self).await
    }

    /// Runs the statement and returns the first row, if any.
    pub async fn optional<T: FromRow>(self, tx: &mut Tx) -> Result<Option<T>, Error> {
        let answer = tx.run(self, Want::First).await?;
        answer.rows.first().map(T::from_row).transpose()
    }

    /// Runs the statement and returns the first row.
    ///
    /// # Errors
    /// [`Error::Internal`] if the result is empty.
    pub async fn one<T: FromRow>(self, tx: &mut Tx) -> Result<T, Error> {
        let row = self.optional(tx).await?;
        row.ok_or_else(|| Error::Internal("the statement returned no row".to_owned()))
    }

    /// Runs the statement and returns all rows.
    pub async fn all<T: FromRow>(self, tx: &mut Tx) -> Result<Vec<T>, Error> {
        let answer = tx.run(self, Want::All).await?;
        // `collect` into a `Result` can't reserve memory for all rows, and would copy a long report several
        // times.
        let mut rows = Vec::with_capacity(answer.rows.len());
        for row in &answer.rows {
            rows.push(T::from_row(row)?);
        }
        Ok(rows)
    }
}
