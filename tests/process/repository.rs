//! The repository itself: its layout, documents, examples and README.

mod circles;
mod documents;
mod layout;
mod packaging;
mod readme;
mod shares;
