//! What a commit tells this process.

use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};

/// What changed, so that what is held in memory of it is no longer true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A session has ended.
    Session(SessionId),
    /// Several sessions of a person have ended.
    User(UserId),
    /// A key was changed, rotated or deleted.
    ApiKey(ApiKeyId),
    /// A project was deleted.
    Project(ProjectId),
    /// An organization was deleted.
    Organization(OrganizationId),
    /// Every replica is to read its catalog file again.
    Catalog,
    /// Every session has ended. Signing keys may have been revoked with them.
    AllSessions,
}
