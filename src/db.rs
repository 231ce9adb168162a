//! The two databases behind one neutral executor.

use std::fmt;

/// A unique constraint that decides a race; its name maps to the caller's error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// One account an e-mail address.
    UserEmail,
    /// One account a username.
    UserUsername,
    /// One organization a name, among those with the same creator.
    OrganizationName,
    /// One project a name, within its organization.
    ProjectName,
    /// One API key a name, within its project.
    ApiKeyName,
    /// One that no caller can meet by a well-formed request; the driver's words.
    Other(String),
}

/// What the database refused. The text goes to the log only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A unique constraint.
    Unique(Constraint),
    /// It can't be reached, is starting or shutting down, or is too busy.
    Unavailable(String),
    /// Its disk is full.
    StorageFull(String),
    /// It can't be written to.
    ReadOnly(String),
    /// Anything else: a mistake of ours or damage.
    Internal(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unique(constraint) => write!(f, "unique constraint: {constraint:?}"),
            Self::Unavailable(what) => write!(f, "database unavailable: {what}"),
            Self::StorageFull(what) => write!(f, "database storage full: {what}"),
            Self::ReadOnly(what) => write!(f, "database is read-only: {what}"),
            Self::Internal(what) => write!(f, "database error: {what}"),
        }
    }
}

impl std::error::Error for Error {}
