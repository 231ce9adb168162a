//! Usernames of accounts that a sign-on creates: similar to the name at the provider, but not taken by
//! another account.

use kernel::naming::{self, Name};

/// The maximum number of characters that are kept, so that a number can be appended.
const MAX_CHARS: usize = 56;
/// The name for users whose provider supplies no valid name.
const FALLBACK: &str = "user";

/// Returns the first candidate: the user's preferred name, or the local part of their e-mail address.
pub fn base(preferred: Option<&str>, email: &str) -> String {
    let candidates = [preferred, Some(email)].into_iter().flatten();
    let before_at = |text: &str| text.split('@').next().unwrap_or_default().to_owned();
    candidates
        .map(|text| cleaned(&before_at(text)))
        .find(|name| naming::username(name).is_ok())
        .unwrap_or_else(|| FALLBACK.to_owned())
}

/// Removes characters that a username can't contain.
fn cleaned(text: &str) -> String {
    let characters = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'));
    characters.take(MAX_CHARS).collect()
}

/// Returns the candidate with this number, counted from 1. The first candidate has no number in its name.
pub fn nth(base: &str, number: u64) -> Option<Name> {
    let text = if number == 1 { base.to_owned() } else { format!("{base}{number}") };
    naming::username(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usernames_are_near_to_what_the_provider_says() {
        for (preferred, email, expected) in [
            (Some("ada"), "x@example.com", "ada"),
            (Some("ada@example.com"), "x@example.com", "ada"),
            (Some("Ada Lovelace"), "x@example.com", "AdaLovelace"),
            (None, "ada.lovelace@example.com", "ada.lovelace"),
            (Some("<script>"), "ada@example.com", "script"),
            (Some("a"), "ada@example.com", "ada"),
            // A reserved name, and a name with characters of two scripts.
            (Some("admin"), "ada@example.com", "ada"),
            (Some("ad\u{430}"), "ada@example.com", "ada"),
            (Some("admin"), "root@example.com", "user"),
            (Some(""), "a@example.com", "user"),
        ] {
            assert_eq!(base(preferred, email), expected, "{preferred:?} {email}");
            assert!(nth(expected, 1).is_some() && nth(expected, u64::from(u32::MAX)).is_some());
        }
        let long = base(Some(&"x".repeat(500)), "a@example.com");
        assert_eq!(nth(&long, 99_999_999).map(|name| name.display.len()), Some(64));
        assert_eq!(nth("ada", 2).map(|name| name.display), Some("ada2".to_owned()));
    }
}
