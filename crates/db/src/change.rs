//! Changes that a transaction announces, so that cached data is dropped.

use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};

/// A change that makes cached data stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A session has ended.
    Session(SessionId),
    /// Several sessions of a user have ended.
    User(UserId),
    /// A key was changed, rotated or deleted.
    ApiKey(ApiKeyId),
    /// A project was deleted.
    Project(ProjectId),
    /// An organization was deleted.
    Organization(OrganizationId),
    /// Every replica must read its catalog file again.
    Catalog,
    /// Every session has ended. Signing keys may have been revoked too.
    AllSessions,
}
