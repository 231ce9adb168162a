//! A parser of TOML text into a tree that keeps the line of every value, for errors that name it.
//!
//! The configuration and the catalog use it. It keeps the source text of numbers, so that none passes through
//! a float. [`values`] reads numbers, flags and other types from the tree.

pub mod values;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use kernel::spelling::closest;

/// A value and the line on which it starts, counted from 1.
#[derive(Clone, Debug)]
pub struct Node {
    pub line: usize,
    pub value: Value,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number, as a literal in base 10.
    Integer(i64),
    /// A number with a point or an exponent, as text.
    Float(String),
    /// `true` or `false`.
    Boolean(bool),
    /// A date, a time or both, as text.
    Datetime(String),
    /// A list.
    List(Vec<Node>),
    /// A table, ordered by line.
    Table(Vec<Entry>),
}

/// A key of a table and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    /// The line of the key.
    pub line: usize,
    pub node: Node,
}

/// An error, and its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The message, which says what is expected.
    pub message: String,
}

/// Parses a document; returns the entries of its root table.
///
/// # Errors
/// The text isn't TOML. The message never quotes the text, which may hold a secret.
pub fn parse(text: &str) -> Result<Vec<Entry>, Problem> {
    let index = LineIndex(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(index.entries(table.get_ref())),
        Err(error) => {
            let line = error.span().map_or(1, |span| index.line(span.start));
            Err(Problem { line, message: format!("this is not valid TOML: {}", error.message()) })
        }
    }
}

/// Parses a single value such as `true`, `100` or `["a", "b"]`.
pub fn parse_value(text: &str) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    Some(LineIndex(text).node(&value).value)
}

/// Returns ``" (did you mean `x`?)"`` with the candidate that is closest to the word, or an empty text if
/// none is close.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    closest(word, candidates).map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"))
}

/// Returns the environment variable of a key of the configuration: `limits.enabled` is `TOLLKEEPER_LIMITS__ENABLED`.
pub fn variable(key: &str) -> String {
    format!("TOLLKEEPER_{}", key.replace('.', "__").to_uppercase())
}

impl Value {
    /// Returns the value as text for an error, truncated if it is long.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{}\"", truncated(text)),
            Self::Integer(number) => number.to_string(),
            Self::Float(literal) | Self::Datetime(literal) => truncated(literal),
            Self::Boolean(flag) => flag.to_string(),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

fn truncated(text: &str) -> String {
    let escaped: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() { format!("{escaped}…") } else { escaped }
}

struct LineIndex<'a>(&'a str);

impl LineIndex<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.0.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn entries(&self, table: &DeTable<'_>) -> Vec<Entry> {
        let mut entries: Vec<Entry> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                line: self.line(key.span().start),
                node: self.node(value),
            })
            .collect();
        entries.sort_by_key(|entry| entry.line);
        entries
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let line = self.line(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                // No key takes a number beyond 64 bits; as a float it is refused with its text.
                Err(_) => Value::Float(number.to_string()),
            },
            DeValue::Float(number) => Value::Float(number.to_string()),
            DeValue::Boolean(flag) => Value::Boolean(*flag),
            DeValue::Datetime(time) => Value::Datetime(time.to_string()),
            DeValue::Array(items) => Value::List(items.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.entries(table)),
        };
        Node { line, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line() {
        let text = "a = 1\n\n[b]\nc = [\n  \"x\",\n  0x10,\n]\n[[d]]\ne = 1.50\nf = 2024-01-01T00:00:00Z\n";
        let entries = parse(text).unwrap();
        let found: Vec<_> = entries.iter().map(|e| (e.key.as_str(), e.line)).collect();
        assert_eq!(found, [("a", 1), ("b", 3), ("d", 8)]);
        let Value::Table(b) = &entries[1].node.value else { panic!("a table") };
        assert_eq!((b[0].line, b[0].node.line), (4, 4));
        let Value::List(items) = &b[0].node.value else { panic!("a list") };
        assert!(matches!((&items[1].value, items[1].line), (Value::Integer(16), 6)));
        let Value::List(d) = &entries[2].node.value else { panic!("a list of tables") };
        let Value::Table(d) = &d[0].value else { panic!("a table") };
        assert_eq!(d[0].node.value.shown(), "1.50");
        assert_eq!(d[1].node.value.shown(), "2024-01-01T00:00:00Z");
    }

    #[test]
    fn invalid_text_is_refused_without_quoting_it() {
        let texts = ["a = 1\ntoken = hunter2hunter2\n", "a = 1\ntoken = \"hunter2\n", "a = 1\nhunter2\n"];
        for text in texts {
            let problem = parse(text).unwrap_err();
            assert_eq!(problem.line, 2, "{text}");
            assert!(problem.message.starts_with("this is not valid TOML: "), "{problem:?}");
            assert!(!problem.message.contains("hunter2"), "{problem:?}");
        }
        assert!(parse("a = 1\na = 2").unwrap_err().message.contains("duplicate key"));
    }
}
