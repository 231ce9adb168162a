//! Names of JSON members, compared as lenient JSON parsers compare them.
//!
//! Go's `encoding/json` accepts a name in any case, even with characters of other scripts that fold to an
//! ASCII letter, and uses the last of several members. Other case-insensitive parsers accept a few more
//! names. A request is refused if such a parser would read one of its members as a field that the gateway
//! checks, and a case-sensitive parser wouldn't. So the gateway checks the same fields that the upstream
//! reads, regardless of its parser.

use std::borrow::Cow;

use kernel::error::{Code, Error};

/// Maximum length of a name that is compared, in bytes. All names on the lists are shorter.
const MAX_BYTES: usize = 64;
/// Maximum number of characters of a client's member name that an error message repeats.
pub(crate) const MAX_SHOWN_CHARS: usize = 64;

/// Returns the listed name that a case-insensitive parser would read `name` as, unless both are identical.
/// The names in the list are ASCII without uppercase letters.
pub(crate) fn lookalike(name: &str, names: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    // The usual case: lower-case ASCII folds to itself, so it can't be a lookalike of another name.
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return None;
    }
    let mut folded = [0; MAX_BYTES];
    let length = fold(name, &mut folded)?;
    let folded = folded.get(..length)?;
    names.into_iter().find(|listed| listed.as_bytes() == folded)
}

/// Returns whether a case-insensitive parser would consider both names equal. `listed` is ASCII without
/// capital letters.
pub(crate) fn is_like(name: &str, listed: &str) -> bool {
    let mut folded = [0; MAX_BYTES];
    name == listed
        || fold(name, &mut folded).is_some_and(|length| folded.get(..length) == Some(listed.as_bytes()))
}

/// Writes the name in lower case. Returns its length; `None` if it is too long, or can't equal any ASCII
/// name.
fn fold(name: &str, folded: &mut [u8; MAX_BYTES]) -> Option<usize> {
    let mut length = 0;
    for character in name.chars() {
        *folded.get_mut(length)? = folded_ascii(character)?;
        length += 1;
    }
    Some(length)
}

/// Returns the lower-case ASCII letter that some case-insensitive parser folds a character to.
fn folded_ascii(character: char) -> Option<u8> {
    match character {
        // The Kelvin sign and the long s, by the simple case folding of Unicode.
        '\u{212a}' => Some(b'k'),
        '\u{17f}' => Some(b's'),
        // Capital I with a dot and small i without a dot: parsers that compare lower-case or upper-case
        // letters read both as i.
        '\u{130}' | '\u{131}' => Some(b'i'),
        _ => u8::try_from(character).ok().filter(u8::is_ascii).map(|byte| byte.to_ascii_lowercase()),
    }
}

/// Shortens a name for an error message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Returns the error for a member whose name differs from a known one only in case. `within` is the path of
/// the object, ending with a period.
pub(crate) fn misspelled(within: &str, name: &str, meant: &str) -> Error {
    let name = shown(name);
    let message = format!(
        "`{within}{name}` isn't supported: write it as `{meant}`. Servers that ignore case would treat \
         both as the same field."
    );
    unsupported(format!("{within}{name}"), message)
}

/// Returns the error 400 `unsupported_parameter`.
pub(crate) fn unsupported(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Error {
    let mut error = Error::new(Code::UnsupportedParameter).message(message);
    error.param = Some(param.into());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["model", "max_tokens", "stream", "kind"];

    #[test]
    fn names_in_another_case_are_found() {
        for (name, meant) in [
            ("Model", "model"),
            ("MAX_TOKENS", "max_tokens"),
            ("max_to\u{212a}ens", "max_tokens"),
            ("\u{17f}tream", "stream"),
            ("max_token\u{17f}", "max_tokens"),
            ("k\u{131}nd", "kind"),
            ("K\u{130}ND", "kind"),
        ] {
            assert_eq!(lookalike(name, NAMES), Some(meant), "{name}");
            assert!(is_like(name, meant));
        }
    }

    #[test]
    fn other_names_are_left_alone() {
        let long = "M".repeat(10_000);
        for name in [
            "",
            "model",
            "stream",
            "Models",
            "mod\u{e9}l",
            "MODEL ",
            "\u{430}",
            "max-tokens",
            "maxTokens",
            &long,
        ] {
            assert_eq!(lookalike(name, NAMES), None, "{name}");
        }
        assert!(is_like("model", "model") && !is_like("modem", "model"));
    }

    #[test]
    fn an_error_repeats_a_name_in_part() {
        let error = misspelled("tools.", &format!("TYPE{}", "\u{e9}".repeat(100)), "type");
        assert_eq!(error.code, Code::UnsupportedParameter);
        assert_eq!(error.param.unwrap().chars().count(), "tools.".len() + MAX_SHOWN_CHARS);
        let error = misspelled("", "Model", "model");
        assert_eq!(error.param.as_deref(), Some("Model"));
        assert!(error.message.unwrap().contains("`model`"));
    }
}
