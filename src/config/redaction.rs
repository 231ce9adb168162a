//! The display of wrong values in errors: as written, unless they may hold a secret.

use kernel::document::{DeValue, shown};
use kernel::secrets::HIDDEN;

/// The longest text that is shown: typing mistakes are short, tokens and passphrases long.
const MAX_SHOWN_CHARS: usize = 32;
/// The longest word of letters alone, or of digits alone, that is shown.
const MAX_WORD_CHARS: usize = 12;
/// The longest word with letters and digits, or with capitals among other letters, that is shown, such as
/// `fe80`.
const MAX_MIXED_CHARS: usize = 4;

/// Returns the value, or only its kind if it may hold a secret: a token or password set as another key, or
/// the login, path or query of a URL.
pub fn redacted(value: &DeValue<'_>) -> String {
    value.as_str().map_or_else(|| shown(value), redacted_text)
}

fn redacted_text(text: &str) -> String {
    if let Some(url) = redacted_url(text) {
        return format!("\"{url}\"");
    }
    if is_safe(text) {
        return shown(&DeValue::String(text.into()));
    }
    format!("a text of {} characters, which isn't shown because it may be a secret", text.chars().count())
}

/// Returns the scheme and host of a URL; login, path and query are replaced by stars.
fn redacted_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (rest, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(rest, _)| (rest, HIDDEN));
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("***@", rest));
    let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    if !is_safe(scheme) || !is_safe(host) {
        return None;
    }
    let path = match path {
        None => "",
        Some("") => "/",
        Some(_) => "/***",
    };
    let query = if query.is_empty() { "" } else { "?***" };
    Some(format!("{scheme}://{login}{host}{path}{query}"))
}

/// Returns `true` for a text of short words, such as a mistyped word, a number, a host or an address.
fn is_safe(text: &str) -> bool {
    let short = text.chars().count() <= MAX_SHOWN_CHARS && !text.contains(['@', '=']);
    short && text.split(|c: char| !c.is_alphanumeric()).all(is_plain_word)
}

fn is_plain_word(word: &str) -> bool {
    let rest = word.get(1..).unwrap_or_default();
    let uniform = word.chars().all(char::is_numeric)
        || word.chars().all(char::is_uppercase)
        // A capital may come first, as in `Tollkeeper`.
        || (word.chars().all(char::is_alphabetic) && !rest.chars().any(char::is_uppercase));
    word.chars().count() <= if uniform { MAX_WORD_CHARS } else { MAX_MIXED_CHARS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_secrets_are_redacted() {
        for text in [
            "hunter2",
            "hunter2:8080",
            "me:secret@host",
            "correct-horse-battery-staple-of-mine",
            "svc_7f3kQ9",
            "password=abc",
            "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            "https://7f3kQ9.example",
        ] {
            let shown = redacted_text(text);
            assert!(shown.starts_with("a text of ") && !shown.contains(text), "{text}: {shown}");
        }
        for (text, expected) in [
            ("https://u:p@host.example:8080/a/b?c#d", "\"https://***@host.example:8080/***?***\""),
            ("http://host/#a", "\"http://host/?***\""),
            ("ftp://host", "\"ftp://host\""),
            ("postgres://a@b:c@d/e", "\"postgres://***@d/***\""),
        ] {
            assert_eq!(redacted_text(text), expected);
        }
    }

    #[test]
    fn short_plain_values_are_shown() {
        for text in [
            "",
            "yes",
            "Yes",
            "0.0.0.0",
            "[fe80::1]:80",
            "keeper.example.com:8080",
            "USDT",
            "10.0.0.0/33",
            "ture\n",
        ] {
            assert_eq!(redacted_text(text), shown(&DeValue::String(text.into())));
        }
        assert_eq!(redacted(DeValue::parse("70_000").unwrap().get_ref()), "70000");
    }
}
