//! The repository itself: layout, documents, examples, the README.

mod circles;
mod documents;
mod layout;
mod packaging;
mod readme;
