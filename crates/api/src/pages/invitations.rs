//! Pages about invitations.

pub mod accept;
