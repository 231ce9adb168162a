//! Text that users chose, so written that no mail program makes a link of it.
//!
//! A name such as `evil.example` or `https://evil.example` would turn into a link in a mail that we send. A break has to be seen:
//! what is invisible, a word joiner for instance, is left out again when a browser reads a domain (UTS 46).

/// The text with its dots and schemes broken up where they could make a link: `evil[.]example`, `https[:]//…`. A dot at the end
/// of a word stays.
pub fn unlinked(text: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        let after = rest.as_str();
        let breaks = match character {
            '.' => before.is_some_and(|c: char| !c.is_whitespace() && c != '.') && goes_on(after),
            // What browsers take for a dot, and other scripts write at the end of a sentence.
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

/// Whether what stands behind a dot could belong to the same word; what is invisible could.
fn goes_on(after: &str) -> bool {
    after.starts_with(|c: char| !c.is_whitespace() && !c.is_ascii_punctuation())
}

/// Only the beginning of a longer text.
pub fn shortened(text: &str, most: usize) -> String {
    let mut characters = text.chars();
    let mut short: String = characters.by_ref().take(most).collect();
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
            // These read as they were written.
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
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äö…");
    }
}
