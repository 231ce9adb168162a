//! Organizations with their projects and members: what holds over several endpoints.

mod count_limits;
mod members_model;
