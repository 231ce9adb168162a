//! Results whose transaction isn't committed yet.

use crate::{Error, Tx};

/// The result of an operation, with the transaction to commit. If it is dropped instead of committed, the
/// operation has no effect.
#[must_use = "nothing is done until it is committed"]
pub struct Uncommitted<T> {
    tx: Tx,
    value: T,
    afterwards: Option<Box<dyn FnOnce() + Send>>,
}

impl<T> Uncommitted<T> {
    /// Returns a result of this transaction, which has run all its statements.
    pub fn new(tx: Tx, value: T) -> Self {
        Self { tx, value, afterwards: None }
    }

    /// Sets the function that is called once the commit has succeeded, instead of the previous one.
    pub fn then(self, call: impl FnOnce() + Send + 'static) -> Self {
        Self { afterwards: Some(Box::new(call)), ..self }
    }

    /// Maps the result to another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Uncommitted<U> {
        Uncommitted { tx: self.tx, value: map(self.value), afterwards: self.afterwards }
    }

    /// Takes the value out of the transaction, which must still be committed.
    pub fn split(self) -> (T, Uncommitted<()>) {
        (self.value, Uncommitted { tx: self.tx, value: (), afterwards: self.afterwards })
    }

    /// Returns the transaction, for further statements.
    pub fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// Commits the transaction and returns the value.
    ///
    /// # Errors
    /// Those of [`Tx::commit`].
    pub async fn commit(self) -> Result<T, Error> {
        self.tx.commit().await?;
        if let Some(call) = self.afterwards {
            call();
        }
        Ok(self.value)
    }
}
