//! Rewriting of text from users, so that mail programs don't turn any of it into links.
//!
//! A name such as `evil.example` or `https://evil.example` would become a link in an e-mail. The inserted
//! characters must be visible, because browsers ignore invisible characters in a domain, such as a word
//! joiner (UTS 46).

/// Returns the text with brackets around dots and colons that could be part of a link, such as
/// `evil[.]example` and `https[:]//…`. A dot at the end of a word isn't changed.
pub fn unlinked(text: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    let mut before = None;
    let mut word_at = 0;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        let after = rest.as_str();
        let breaks = match character {
            '.' => {
                let word = text.get(word_at..text.len() - after.len() - 1).unwrap_or_default();
                before.is_some_and(|c: char| !c.is_whitespace() && c != '.')
                    && continues_word(after)
                    && !is_number(word, after)
            }
            // Browsers treat these characters as dots. Other scripts use them at the end of a sentence.
            '\u{3002}' | '\u{ff0e}' | '\u{ff61}' | '\u{2024}' => {
                after.starts_with(|c: char| c.is_ascii_alphanumeric())
            }
            ':' => after.starts_with("//"),
            _ => false,
        };
        if breaks {
            broken.push('[');
        }
        if character.is_whitespace() {
            word_at = text.len() - after.len();
        }
        broken.push(character);
        if breaks {
            broken.push(']');
        }
        before = Some(character);
    }
    broken
}

/// Returns `true` if the text after a dot could belong to the same word. This includes invisible characters.
fn continues_word(after: &str) -> bool {
    after.starts_with(|c: char| !c.is_whitespace() && !c.is_ascii_punctuation())
}

/// Returns `true` if the word around a dot is a number such as `-1,234.50`, which is never a link. An IP address
/// has more dots.
fn is_number(word: &str, after: &str) -> bool {
    let whole = word.strip_prefix('-').unwrap_or(word);
    let fraction = after.split(char::is_whitespace).next().unwrap_or_default();
    let fraction = fraction.trim_end_matches(['.', ',', ';', ')']);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_digits(fraction) && is_digits(&whole.replace(',', ""))
}

/// Returns the text, shortened to at most `max` characters.
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
            ("1.2.3", "1[.]2[.]3"),
            ("a1.50 1.50a .5.5", "a1[.]50 1[.]50a .5[.]5"),
            // These texts aren't changed.
            ("Acme Inc.", "Acme Inc."),
            ("Acme Inc. (Berlin)", "Acme Inc. (Berlin)"),
            ("wait...what", "wait...what"),
            ("Team: Blue", "Team: Blue"),
            ("3:30", "3:30"),
            ("now 1,234.50 USD; it was -0.25.", "now 1,234.50 USD; it was -0.25."),
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
