//! What can go wrong in a database, in the few kinds that callers tell apart.

use std::borrow::Cow;
use std::fmt;
use std::io;

use kernel::error::Code;

use crate::constraint::{Constraint, Reference};

/// What the database refused. The text goes to the log only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A unique constraint.
    Unique(Constraint),
    /// What a row refers to is gone: whoever removed it was faster.
    Missing(Reference),
    /// It can't be reached, is starting or shutting down, or is too busy.
    Unavailable(String),
    /// Its disk is full.
    StorageFull(String),
    /// It can't be written to.
    ReadOnly(String),
    /// This process may not do it as it is configured, in words for the caller.
    NotReady(String),
    /// Anything else: a mistake of ours or damage.
    Internal(String),
}

impl Error {
    /// What the operating system said about a file of ours.
    pub(super) fn from_io(what: &str, error: &io::Error) -> Self {
        let text = format!("{what}: {error}");
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::StorageFull(text),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(text),
            _ => Self::Unavailable(text),
        }
    }

    /// A blocking thread of ours died or the runtime is shutting down.
    pub(super) fn from_join(error: &tokio::task::JoinError) -> Self {
        Self::Unavailable(format!("the database thread ended: {error}"))
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
                Constraint::OrganizationName | Constraint::ProjectName | Constraint::ApiKeyName => {
                    (Code::NameTaken, Some("name"))
                }
                Constraint::OpenInvitation => (Code::AlreadyInvited, Some("email")),
                // Whoever writes these looks at the outcome itself.
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
