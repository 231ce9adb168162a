//! The public listener: HTTP only, one file a URL noun. What a request may do was decided by the gate, what it means is
//! decided in `rules`, and what is stored is in `store`.

pub mod auth;
pub mod billing;
pub mod models;
pub mod organizations;
pub mod paging;
pub mod well_known;
