//! Pages of lists, and the search in them.

/// One page of a list, as every list has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Counted from 1.
    pub page: i64,
    /// Entries a page.
    pub page_size: i64,
}

impl Page {
    /// How many entries come before this page.
    pub fn offset(self) -> i64 {
        self.page.saturating_sub(1).saturating_mul(self.page_size)
    }
}

/// A pattern for `LIKE … ESCAPE '\'` that finds this text anywhere. The text is folded like the column it is held
/// against, because the databases disagree about case.
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
