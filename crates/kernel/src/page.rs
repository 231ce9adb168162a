//! Pages of lists.

/// A page of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The number of the page, counted from 1.
    pub page: i64,
    /// The number of entries per page.
    pub page_size: i64,
}

impl Page {
    /// Returns the number of entries before this page.
    pub fn offset(self) -> i64 {
        self.page.saturating_sub(1).saturating_mul(self.page_size)
    }
}
