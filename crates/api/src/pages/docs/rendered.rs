//! The rendered pages of the reference.

use std::collections::BTreeMap;

use hyper::body::Bytes;

/// The pages of the reference.
#[derive(Debug)]
pub struct Docs {
    pub(super) overview: Bytes,
    pub(super) unknown: Bytes,
    /// The pages of subjects and tools, by path segment.
    pub(super) subjects: BTreeMap<String, Bytes>,
}
