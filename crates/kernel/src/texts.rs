//! Texts from users: how they are compared, and how a broken rule is described.

use unicode_normalization::UnicodeNormalization;

/// A broken rule. It doesn't name the field, which the caller knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// A stable lower_snake code, for instance `too_long`.
    pub code: &'static str,
    /// The rule, for instance `must be at most 100 characters`.
    pub message: String,
}

impl Problem {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Returns the form in which two texts are compared, ignoring case: NFKC, lower case, NFKC.
///
/// Characters are lower-cased one by one, and a final sigma becomes an ordinary one, so that the end of a word
/// makes no difference.
pub fn fold(text: &str) -> String {
    let lower = text.nfkc().flat_map(char::to_lowercase).map(|c| if c == 'ς' { 'σ' } else { c });
    lower.nfkc().collect()
}

/// Returns `true` for control characters, line and paragraph separators, and the marks that override the
/// direction of text, which can make one text read as another (Unicode TR 36, section 2.6).
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
