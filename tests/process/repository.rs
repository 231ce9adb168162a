//! The repository itself: layout, documents, examples, the README.

mod documents;
mod layout;
mod packaging;
mod readme;
