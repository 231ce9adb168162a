//! The keys of rows of `usage_daily_sums`.

use kernel::clock::Day;
use kernel::ids::{CallerId, OrganizationId, ProjectId};

/// The model or caller whose usage is added up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SumGroup<'a> {
    Model(&'a str),
    Caller(CallerId),
}

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SumKey<'a> {
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub day: Day,
    pub group: SumGroup<'a>,
    pub kind: &'static str,
}
