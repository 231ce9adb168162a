//! Text from users: its form for comparison, and the description of violated rules.

use unicode_normalization::UnicodeNormalization;

/// A violated rule. The field isn't included, because the caller knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// A stable code in snake case, for instance `too_long`.
    pub code: &'static str,
    /// The rule, for instance `must be at most 100 characters`.
    pub message: String,
}

impl Problem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Returns the form in which two strings are compared, ignoring case: NFKC, lower case, NFKC.
///
/// Characters are lowercased one by one, and a final sigma becomes an ordinary sigma, so that the result
/// doesn't depend on the position in a word.
pub fn fold(text: &str) -> String {
    let lower = text.nfkc().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c });
    lower.nfkc().collect()
}

/// Returns `true` for control characters, line and paragraph separators, and the marks that override the
/// direction of text, which can make a string look like another one (Unicode TR 36, section 2.6).
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
