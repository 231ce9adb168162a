//! Pages below `/console/organizations/{organization_id}/projects`

pub mod members;
//! `/console/organizations/{organization_id}/projects`

pub mod playground;
//! `/console/organizations/{organization_id}/projects/…`

pub mod usage;
