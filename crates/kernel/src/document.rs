//! TOML documents that are read into structs with `serde`: the configuration and the catalog.
//!
//! A mistake is reported with its line, its key and the expected value. The message never quotes the text,
//! which may contain a secret. [`values`] reads strings, numbers and lists, and describes the expected values
//! in its errors.

pub mod values;

use std::borrow::Cow;

use serde::de::{DeserializeOwned, IntoDeserializer};
pub use toml::Spanned;
pub use toml::de::{DeTable, DeValue};

use crate::spelling::closest;

/// A mistake in a document. It can't be printed, because the value may be a secret.
pub struct Mistake<'t> {
    /// The position in the text, in bytes.
    pub at: usize,
    /// The line, counted from 1.
    pub line: usize,
    /// The key with the keys of the enclosing tables, such as `limits.enabled`.
    pub key: String,
    pub kind: MistakeKind<'t>,
}

/// The kind of a mistake.
pub enum MistakeKind<'t> {
    /// The text isn't TOML, for this reason.
    Syntax(String),
    /// The key is unknown in this table. The known keys are given.
    UnknownKey(Vec<String>),
    /// A required key is missing.
    MissingKey,
    /// The value is invalid. `expected` describes a valid value.
    Wrong { expected: String, found: DeValue<'t> },
}

/// The start of serde's message about an unknown key.
const UNKNOWN_KEY: &str = "unknown field `";
/// The start of serde's message about a missing key.
const MISSING_KEY: &str = "missing field `";

/// Parses a document.
///
/// # Errors
/// The text isn't TOML.
pub fn parse(text: &str) -> Result<DeTable<'_>, Mistake<'_>> {
    DeTable::parse(text).map(Spanned::into_inner).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let why = format!("this is not valid TOML: {}", error.message());
        Mistake { at, line: line(text, at), key: String::new(), kind: MistakeKind::Syntax(why) }
    })
}

/// Reads the table that was parsed from this text.
///
/// # Errors
/// The first mistake.
pub fn read<'t, T: DeserializeOwned>(table: &DeTable<'_>, text: &'t str) -> Result<T, Mistake<'t>> {
    T::deserialize(Spanned::new(0..0, table.clone()).into_deserializer())
        .map_err(|error| Mistake::new(&error, text))
}

impl<'t> Mistake<'t> {
    fn new(error: &toml::de::Error, text: &'t str) -> Self {
        let (message, span) = (error.message(), error.span().unwrap_or_default());
        // The keys are available only in the text of the error, after the message.
        let keys = error
            .to_string()
            .strip_prefix(message)
            .and_then(|rest| Some(rest.trim_end().strip_prefix("\nin `")?.strip_suffix('`')?.to_owned()));
        let mut quoted = message.split('`').skip(1).step_by(2).map(str::to_owned);
        let (name, kind) = if message.starts_with(UNKNOWN_KEY) {
            (quoted.next(), MistakeKind::UnknownKey(quoted.collect()))
        } else if message.starts_with(MISSING_KEY) {
            (quoted.next(), MistakeKind::MissingKey)
        } else {
            // The header of a table isn't a value.
            let found = text.get(span.clone()).and_then(|text| DeValue::parse(text).ok());
            let found = found.map_or_else(|| DeValue::Table(DeTable::new()), Spanned::into_inner);
            (None, MistakeKind::Wrong { expected: explain(message), found })
        };
        let key = keys.into_iter().chain(name).collect::<Vec<_>>().join(".");
        Self { at: span.start, line: line(text, span.start), key, kind }
    }
}

/// Returns the expected value that a message describes, without the value that was found.
fn explain(message: &str) -> String {
    if message.starts_with("expected ") {
        return message.to_owned();
    }
    // A serde message ends with the expected type: "invalid type: string \"x\", expected a boolean".
    match message.rsplit_once(", expected ").map(|(_, expected)| expected) {
        Some("a boolean") => "expected true or false".to_owned(),
        Some("a sequence") => "expected a list".to_owned(),
        Some(expected) => format!("expected {expected}"),
        None => "expected another value".to_owned(),
    }
}

/// Returns the line of a byte of the text, counted from 1.
pub fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// Returns the value of a key, which may contain dots.
pub fn find<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
    match key.split_once('.') {
        Some((name, rest)) => find(table.get(name)?.get_ref().as_table()?, rest),
        None => table.get(key),
    }
}

/// Sets the value of a key, which may contain dots.
pub fn set<'a>(table: &mut DeTable<'a>, key: &str, value: DeValue<'a>) {
    let new = |name: &str| Spanned::new(0..0, Cow::Owned(name.to_owned()));
    let Some((name, rest)) = key.split_once('.') else {
        table.insert(new(key), Spanned::new(0..0, value));
        return;
    };
    let empty = || Spanned::new(0..0, DeValue::Table(DeTable::new()));
    if let DeValue::Table(inner) = table.entry(new(name)).or_insert_with(empty).get_mut() {
        set(inner, rest, value);
    }
}

/// Returns ``" (did you mean `x`?)"`` with the candidate that is closest to the word, or an empty string if
/// no candidate is close.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    closest(word, candidates).map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"))
}

/// Returns the environment variable of a key of the configuration. For `limits.enabled`, it is
/// `TOLLKEEPER_LIMITS__ENABLED`.
pub fn variable(key: &str) -> String {
    format!("TOLLKEEPER_{}", key.replace('.', "__").to_uppercase())
}

/// Returns a value as text for an error, truncated if it is long.
pub fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", truncated(text)),
        DeValue::Integer(number) => truncated(&number.to_string()),
        DeValue::Float(number) => truncated(number.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn truncated(text: &str) -> String {
    let escaped: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() { format!("{escaped}…") } else { escaped }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::values::{Table, decimal, table, whole};
    use super::*;
    use crate::money::Ppm;

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        on: bool,
        #[serde(default, deserialize_with = "table")]
        inner: Inner,
        #[serde(default)]
        entries: Vec<Spanned<Table<Entry>>>,
    }

    #[derive(Deserialize, PartialEq, Default, Debug)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        #[serde(deserialize_with = "whole::<1, 9, _, _>")]
        digit: u8,
        flag: bool,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        id: String,
        #[serde(deserialize_with = "part")]
        part: Ppm,
        #[serde(default)]
        more: Vec<Table<Inner>>,
    }

    fn part<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Ppm, D::Error> {
        decimal(deserializer, "a part", Ppm::from_units(1_000_000), "\"0.5\"")
    }

    /// Reads a text. A mistake is returned as one line.
    fn read_file(text: &str) -> Result<File, String> {
        super::read(&parse(text).ok().unwrap(), text).map_err(|Mistake { line, key, kind, .. }| match kind {
            MistakeKind::UnknownKey(known) => format!("{line} {key}: unknown, known are {}", known.join(" ")),
            MistakeKind::MissingKey => format!("{line} {key} is missing"),
            MistakeKind::Wrong { expected, found } => {
                format!("{line} {key}: {expected}, found {}", shown(&found))
            }
            MistakeKind::Syntax(why) => panic!("{why}"),
        })
    }

    #[test]
    fn mistake_has_its_line_and_its_key() {
        let entry = "[[entries]]\nid = \"a\"\npart = 1\n";
        let cases = [
            ("\non = 1".to_owned(), "2 on: expected true or false, found 1"),
            ("colour = 2".to_owned(), "1 colour: unknown, known are on inner entries"),
            (
                "[inner]\n\ndigit = 0".to_owned(),
                "3 inner.digit: expected a whole number from 1 to 9, found 0",
            ),
            (
                "inner.digit = \"x\"".to_owned(),
                "1 inner.digit: expected a whole number from 1 to 9, found \"x\"",
            ),
            ("[inner]\nflags = true".to_owned(), "2 inner.flags: unknown, known are digit flag"),
            (
                format!("{entry}{entry}more = [{{ digit = 3 }},\n{{ digit = 1_0 }}]"),
                "8 entries.more.digit: expected a whole number from 1 to 9, found 10",
            ),
            (
                "[[entries]]\nid = \"\"\npart = 0.50".to_owned(),
                "3 entries.part: expected a part from 0 to 1 such as \"0.5\"; write it in quotes, so that it \
                 stays exact, found 0.50",
            ),
            (format!("{entry}[[entries]]\npart = 1"), "4 entries.id is missing"),
            (format!("{entry}[[entries]]\nid = \"b\""), "4 entries.part is missing"),
            ("inner = [3, true]".to_owned(), "1 inner: expected a table, found a list"),
            ("entries = [[\"a\", 1]]".to_owned(), "1 entries: expected a table, found a list"),
            ("entries = 3".to_owned(), "1 entries: expected a list, found 3"),
            ("on = [\n1]".to_owned(), "1 on: expected true or false, found a list"),
            ("[on]".to_owned(), "1 on: expected true or false, found a table"),
        ];
        for (text, expected) in cases {
            assert_eq!(read_file(&text).unwrap_err(), expected, "{text}");
        }
        let text = format!("\n{entry}");
        let entries = read_file(&text).unwrap().entries;
        assert_eq!((entries[0].get_ref().0.id.as_str(), line(&text, entries[0].span().start)), ("a", 2));
    }

    #[test]
    fn keys_with_dots_are_set_and_found() {
        let text = "on = true\n[inner]\ndigit = 3\n";
        let mut table = parse(text).ok().unwrap();
        assert_eq!(find(&table, "inner.digit").map(|value| line(text, value.span().start)), Some(3));
        assert!(find(&table, "inner.flag").is_none() && find(&table, "on.off").is_none());
        set(&mut table, "inner.flag", DeValue::Boolean(true));
        set(&mut table, "on", DeValue::Boolean(false));
        let expected = File { on: false, inner: Inner { digit: 3, flag: true }, entries: vec![] };
        assert_eq!(super::read::<File>(&table, text).ok(), Some(expected));
    }

    #[test]
    fn invalid_text_is_refused_without_quoting_it() {
        let why = |text| match parse(text).unwrap_err() {
            Mistake { line, kind: MistakeKind::Syntax(why), .. } => (line, why),
            _ => panic!("another mistake"),
        };
        for text in ["a = 1\ntoken = hunter2hunter2\n", "a = 1\ntoken = \"hunter2\n", "a = 1\nhunter2\n"] {
            let (line, why) = why(text);
            assert!(line == 2 && why.starts_with("this is not valid TOML: "), "{line} {why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
        assert!(why("a = 1\na = 2").1.contains("duplicate key"));
    }
}
