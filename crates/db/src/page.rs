//! Pages of lists, and text search in them.

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

/// Returns a pattern for `LIKE … ESCAPE '\'` that matches texts with `folded` anywhere in them.
///
/// The text must be folded like the column that it is compared with, because the databases disagree about
/// case.
pub fn contains_pattern(folded: &str) -> String {
    let mut pattern = String::with_capacity(folded.len() + 2);
    pattern.push('%');
    for character in folded.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}
