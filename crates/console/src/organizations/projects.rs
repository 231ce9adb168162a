//! Pages below `/console/organizations/{organization_id}/projects`

pub mod members;
pub mod playground;
