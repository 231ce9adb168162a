//! Pages of lists.

/// A page of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Counted from 1.
    pub page: i64,
    /// Entries per page.
    pub page_size: i64,
}

impl Page {
    /// The number of entries before this page.
    pub fn offset(self) -> i64 {
        self.page.saturating_sub(1).saturating_mul(self.page_size)
    }
}
