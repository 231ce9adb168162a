//! Projects of an organization.

use crate::access::ProjectScope;
use crate::error::{Code, Error};
use crate::store;
use crate::store::projects::ProjectDetail;

use super::Tenants;

/// Returns the project with its counts.
///
/// # Errors
/// 404 when it is gone since the gate.
pub async fn read(tenants: &Tenants, scope: &ProjectScope) -> Result<ProjectDetail, Error> {
    let mut tx = tenants.db.read().await?;
    let project = store::projects::detail(&mut tx, scope.organization_id(), scope.project_id()).await?;
    Ok(project.ok_or(Code::ProjectNotFound)?)
}
