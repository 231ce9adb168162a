//! The number of connections to a database.

/// The connections for one purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connections {
    /// `write`, `read` or `long_read`.
    pub purpose: &'static str,
    /// Open connections.
    pub open: usize,
    /// Connections that are checked out; for shared connections, the same as `open`.
    pub in_use: usize,
    /// Maximum number of open connections.
    pub max: usize,
    /// Tasks that wait for a connection, if known; otherwise 0.
    pub waiting: usize,
}
