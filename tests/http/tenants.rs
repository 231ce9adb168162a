//! Organizations with their projects and members: rules that span several endpoints.

mod count_limits;
mod members_model;
