//! Pages of lists, and text search in them.

pub use kernel::page::Page;

/// Returns a pattern for `LIKE … ESCAPE '\'` that matches strings that contain `folded`.
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
