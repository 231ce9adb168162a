//! Rewrites texts that users chose so that no mail program makes a link of them.
//!
//! A name such as `evil.example` or `https://evil.example` would turn into a link in an e-mail that we send.
//! The break has to be visible: invisible characters, a word joiner for instance, are dropped when a browser
//! reads a domain (UTS 46).

/// Returns the text with its dots and schemes broken up where they could make a link: `evil[.]example`,
/// `https[:]//…`. A dot at the end of a word stays.
pub fn unlinked(text: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        let after = rest.as_str();
        let breaks = match character {
            '.' => before.is_some_and(|c: char| !c.is_whitespace() && c != '.') && continues_word(after),
            // Characters that browsers treat as a dot, and that other scripts write at the end of a sentence.
            '\u{3002}' | '\u{ff0e}' | '\u{ff61}' | '\u{2024}' => {
                after.starts_with(|c: char| c.is_ascii_alphanumeric())
            }
            ':' => after.starts_with("//"),
            _ => false,
        };
        if breaks {
            broken.push('[');
        }
        broken.push(character);
        if breaks {
            broken.push(']');
        }
        before = Some(character);
    }
    broken
}

/// Returns `true` if the text after a dot could belong to the same word; invisible characters could.
fn continues_word(after: &str) -> bool {
    after.starts_with(|c: char| !c.is_whitespace() && !c.is_ascii_punctuation())
}

/// Returns the text, cut to at max `max` characters.
pub fn truncated(text: &str, max: usize) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(max).collect();
    if characters.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_schemes_are_broken_up() {
        let cases = [
            ("evil.example", "evil[.]example"),
            ("https://evil.example/a.b?c", "https[:]//evil[.]example/a[.]b?c"),
            ("www.evil.example.", "www[.]evil[.]example."),
            ("evil.\u{200b}example", "evil[.]\u{200b}example"),
            ("evil\u{2060}.example", "evil\u{2060}[.]example"),
            ("evil\u{3002}example", "evil[\u{3002}]example"),
            ("例え。テスト", "例え。テスト"),
            ("evil。com", "evil[。]com"),
            ("пример.рф", "пример[.]рф"),
            ("192.0.2.1", "192[.]0[.]2[.]1"),
            // These stay as they are.
            ("Acme Inc.", "Acme Inc."),
            ("Acme Inc. (Berlin)", "Acme Inc. (Berlin)"),
            ("wait...what", "wait...what"),
            ("Team: Blue", "Team: Blue"),
            ("3:30", "3:30"),
            (".net", ".net"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(unlinked(text), expected);
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(truncated("äöü", 3), "äöü");
        assert_eq!(truncated("äöüß", 3), "äö…");
    }
}
