//! `/console/organizations/{organization_id}/projects/…`

pub mod usage;
