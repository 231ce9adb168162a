//! Database errors, in the few kinds that callers distinguish.

use std::borrow::Cow;
use std::{fmt, io};

use kernel::error::Code;

use crate::constraint::{Constraint, Reference};

/// A database error. The messages are only logged, except that of `NotReady`, which is returned to the
/// caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A unique constraint was violated.
    Unique(Constraint),
    /// The target of a foreign key was removed concurrently.
    Missing(Reference),
    /// The database can't be reached, is starting or shutting down, or is too busy.
    Unavailable(String),
    /// The disk of the database is full.
    StorageFull(String),
    /// The database can't be written to.
    ReadOnly(String),
    /// The configuration of this process doesn't allow the operation. The text is shown to the caller.
    NotReady(String),
    /// Anything else: a bug or a damaged database.
    Internal(String),
}

impl Error {
    /// Converts an error of the operating system; `context` names the file.
    pub(super) fn from_io(context: &str, error: &io::Error) -> Self {
        let text = format!("{context}: {error}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::StorageFull(text),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(text),
            _ => Self::Unavailable(text),
        }
    }

    /// Converts the error of a blocking task that panicked, or was canceled because the runtime shut down.
    pub(super) fn from_join(error: &tokio::task::JoinError) -> Self {
        Self::Unavailable(format!("a database task ended: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unique(constraint) => write!(f, "unique constraint: {constraint:?}"),
            Self::Missing(reference) => write!(f, "foreign key: {reference:?}"),
            Self::Unavailable(what) => write!(f, "database unavailable: {what}"),
            Self::StorageFull(what) => write!(f, "database storage full: {what}"),
            Self::ReadOnly(what) => write!(f, "database is read-only: {what}"),
            Self::NotReady(what) => f.write_str(what),
            Self::Internal(what) => write!(f, "database error: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for kernel::error::Error {
    fn from(error: Error) -> Self {
        if let Error::NotReady(message) = error {
            return Self::new(Code::NotReady).message(message);
        }
        let (code, param) = match &error {
            Error::Unique(constraint) => match constraint {
                Constraint::UserEmail => (Code::EmailTaken, Some("email")),
                Constraint::UserUsername => (Code::UsernameTaken, Some("username")),
                Constraint::OrganizationName
                | Constraint::ProjectName
                | Constraint::ApiKeyName
                | Constraint::BudgetName => (Code::NameTaken, Some("name")),
                Constraint::OpenInvitation => (Code::AlreadyInvited, Some("email")),
                Constraint::PaymentRequest => (Code::IdempotencyInProgress, None),
                // The code that writes these rows handles the violation itself.
                Constraint::LedgerKey | Constraint::CreditReference | Constraint::Other(_) => {
                    (Code::Internal, None)
                }
            },
            Error::Missing(reference) => match reference {
                Reference::Organization => (Code::OrganizationNotFound, None),
                Reference::Project => (Code::ProjectNotFound, None),
                Reference::Other(_) => (Code::Internal, None),
            },
            Error::Unavailable(_) => (Code::DatabaseUnavailable, None),
            Error::StorageFull(_) => (Code::StorageFull, None),
            Error::ReadOnly(_) => (Code::StorageReadOnly, None),
            Error::NotReady(_) => (Code::NotReady, None),
            Error::Internal(_) => (Code::Internal, None),
        };
        Self { param: param.map(Cow::Borrowed), internal: Some(error.to_string()), ..Self::new(code) }
    }
}
