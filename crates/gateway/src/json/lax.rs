//! Repair of JSON that lenient parsers accept and strict parsers refuse. No byte changes its position.
//!
//! | deviation | written by | replaced with |
//! |---|---|---|
//! | an unpaired surrogate as an escape (`\ud83d` alone), or an incomplete UTF-8 sequence | servers that cut a token's text, or a client's text | a space, or `?` for each byte |
//! | `NaN`, `Infinity`, `-Infinity` | Python's `json` | `0` |
//! | control characters within strings | servers that don't escape them | a space |
//! | a byte order mark | editors; RFC 8259, section 8.1, allows parsers to ignore it | spaces |

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The deviations from JSON that are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Laxity {
    /// Unpaired surrogates as escapes, which the grammar of JSON allows.
    Escapes,
    /// Everything in the table above.
    Everything,
}

/// Returns JSON of the same length with its members at the same positions; `None` if nothing has to be
/// replaced. A name with an unpaired surrogate stays unchanged, because parsers could disagree about the
/// name.
pub(super) fn readable(text: &[u8], laxity: Laxity) -> Option<Vec<u8>> {
    let mut repair = Repair { text: text.to_vec(), is_changed: false };
    repair.escapes();
    if laxity == Laxity::Everything {
        repair.bytes();
        repair.control_characters_and_numbers();
    }
    repair.is_changed.then_some(repair.text)
}

/// The end of a string, and whether it is the name of a member.
#[derive(Clone, Copy, Default)]
struct StringEnd {
    end: usize,
    is_name: bool,
}

struct Repair {
    text: Vec<u8>,
    is_changed: bool,
}

impl Repair {
    fn fill(&mut self, at: usize, length: usize, with: u8) {
        if let Some(place) = self.text.get_mut(at..at + length) {
            place.fill(with);
            self.is_changed = true;
        }
    }

    /// Replaces escapes that are unpaired surrogates.
    fn escapes(&mut self) {
        let (mut at, mut string) = (0, StringEnd::default());
        while let Some(place) = next_unpaired(&self.text, &mut at) {
            if self.string_at(place, &mut string).is_name {
                continue;
            }
            if let Some(digits) = self.text.get_mut(place + 2..place + 6) {
                digits.copy_from_slice(b"0020");
                self.is_changed = true;
            }
        }
    }

    /// Returns the string that contains this position. The end of each string is searched for only once, no
    /// matter how many escapes the string has.
    fn string_at(&self, at: usize, last: &mut StringEnd) -> StringEnd {
        if at >= last.end {
            let end = super::end_of_string(&self.text, at);
            let after = self.text.get(end + 1..).unwrap_or_default();
            *last = StringEnd { end, is_name: after.trim_ascii_start().starts_with(b":") };
        }
        *last
    }

    /// Replaces bytes that aren't UTF-8, and a byte order mark.
    fn bytes(&mut self) {
        if self.text.starts_with(BYTE_ORDER_MARK) {
            self.fill(0, BYTE_ORDER_MARK.len(), b' ');
        }
        let mut at = 0;
        while let Some(Err(error)) = self.text.get(at..).map(std::str::from_utf8) {
            at += error.valid_up_to();
            let length = error.error_len().unwrap_or(self.text.len() - at);
            self.fill(at, length, b'?');
            at += length;
        }
    }

    fn control_characters_and_numbers(&mut self) {
        let mut at = 0;
        while let Some(byte) = self.text.get(at).copied() {
            if byte == b'"' {
                let end = super::end_of_string(&self.text, at + 1);
                for within in at + 1..end {
                    if self.text.get(within).is_some_and(u8::is_ascii_control) {
                        self.fill(within, 1, b' ');
                    }
                }
                at = end + 1;
                continue;
            }
            let rest = self.text.get(at..).unwrap_or_default();
            let words: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
            match words.into_iter().find(|word| rest.starts_with(word)) {
                Some(word) => {
                    self.fill(at, word.len(), b' ');
                    self.fill(at, 1, b'0');
                    at += word.len();
                }
                None => at += 1,
            }
        }
    }
}

/// Returns `true` if the text has an unpaired surrogate as an escape.
pub(super) fn has_unpaired_surrogate(text: &[u8]) -> bool {
    next_unpaired(text, &mut 0).is_some()
}

/// Returns the position of the next unpaired surrogate written as an escape, starting at `at`, and moves `at`
/// after it.
fn next_unpaired(text: &[u8], at: &mut usize) -> Option<usize> {
    loop {
        let place = *at + memchr::memchr(b'\\', text.get(*at..)?)?;
        let unit = unit_at(text, place);
        let is_pair = unit.is_some_and(is_high) && unit_at(text, place + 6).is_some_and(is_low);
        *at = place + if is_pair { 12 } else { unit.map_or(2, |_| 6) };
        if !is_pair && unit.is_some_and(|unit| is_high(unit) || is_low(unit)) {
            return Some(place);
        }
    }
}

/// Returns the code unit of the escape `\uXXXX` at this position.
fn unit_at(text: &[u8], at: usize) -> Option<u16> {
    let escape = text.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_high(unit: u16) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xdc00..0xe000).contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], laxity: Laxity) -> Option<String> {
        let readable = readable(text, laxity)?;
        assert_eq!(readable.len(), text.len());
        Some(String::from_utf8(readable).unwrap())
    }

    #[test]
    fn what_strict_readers_refuse_is_replaced_in_its_place() {
        let cases: [(&[u8], &str); 9] = [
            (br#"{"a":"\ud83d"}"#, r#"{"a":"\u0020"}"#),
            (br#"{"a":"\ude00\ud83d\ude00\ud83d"}"#, r#"{"a":"\u0020\ud83d\ude00\u0020"}"#),
            (br#"{"a":"\\ud83d\ud83dx"}"#, r#"{"a":"\\ud83d\u0020x"}"#),
            (b"{\"a\":\"\xf0\x9f\"}", "{\"a\":\"??\"}"),
            (b"\xef\xbb\xbf{}", "   {}"),
            (
                br#"{"a":[NaN,-Infinity,Infinity],"NaN":"NaN"}"#,
                r#"{"a":[0  ,0        ,0       ],"NaN":"NaN"}"#,
            ),
            (b"{\"a\":\"b\tc\nd\"}\n", "{\"a\":\"b c d\"}\n"),
            (br#"{"a\"b":"\uD83D"}"#, r#"{"a\"b":"\u0020"}"#),
            (b"{\"a\":\"\xe2\x9c", "{\"a\":\"??"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text, Laxity::Everything).as_deref(), Some(expected));
        }
    }

    #[test]
    fn good_texts_and_names_stay() {
        for text in
            [r#"{"a":"\ud83d\ude00é\n","b":-1.5e3}"#, r#"{"m\ud83del" :1}"#, "", "\\", r#"{"a":"\u12"#]
        {
            assert_eq!(read(text.as_bytes(), Laxity::Everything), None, "{text}");
        }
        assert_eq!(read(b"{\"a\":NaN}", Laxity::Escapes), None);
        assert_eq!(read(br#"{"a":"\udfff"}"#, Laxity::Escapes).as_deref(), Some(r#"{"a":"\u0020"}"#));
    }

    /// A regression test: the end of the string used to be searched for at each surrogate, which took hours.
    #[test]
    fn many_unpaired_surrogates_take_linear_time() {
        let text = format!(r#"{{"a":"{}"}}"#, r"\ud83d".repeat(700_000));
        let read = read(text.as_bytes(), Laxity::Everything);
        assert_eq!(read, Some(format!(r#"{{"a":"{}"}}"#, r"\u0020".repeat(700_000))));
    }
}
