//! What the repository says about itself: layout, documents, examples, the README.

mod documents;
mod layout;
mod packaging;
mod readme;
