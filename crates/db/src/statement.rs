//! Statements: one SQL text for both databases, with its values.

use std::borrow::Cow;

use crate::{Row, Value};

/// An SQL statement with the values of its parameters `$1…`.
#[must_use = "a statement does nothing until it is run"]
pub struct Statement {
    pub(super) text: Cow<'static, str>,
    pub(super) values: Vec<Value>,
    pub(super) heavy: bool,
}

/// The server's current time in Unix milliseconds, as an expression of SQL; `NULL` on SQLite, which has no
/// server.
pub const SERVER_TIME: &str = "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// Creates a statement. Every connection keeps its prepared statements, so the number of different statements
/// must be small: values are bound, never formatted into the text.
pub fn sql(text: impl Into<Cow<'static, str>>) -> Statement {
    Statement { text: text.into(), values: Vec::new(), heavy: false }
}

/// The strength of a row lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Excludes other changes and locks of the row.
    Change,
    /// Also excludes new rows that refer to the row.
    Removal,
}

impl Lock {
    /// Returns PostgreSQL's clause for the lock.
    pub(super) fn clause(self) -> &'static str {
        match self {
            Self::Change => "FOR NO KEY UPDATE",
            Self::Removal => "FOR UPDATE",
        }
    }
}

/// The part of the result to return.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Only the number of changed rows.
    Count,
    /// The first row, if any.
    First,
    /// All rows.
    All,
}

/// The result of a statement.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
}

impl Statement {
    /// Binds the next parameter.
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Binds the next `N` parameters, for instance those of a row.
    pub fn bind_all<const N: usize>(mut self, values: [Value; N]) -> Self {
        self.values.extend(values);
        self
    }

    /// Reserves memory for `values` values.
    pub fn expecting(mut self, values: usize) -> Self {
        self.values.reserve_exact(values);
        self
    }

    /// Marks a statement that may read many rows. It runs separately from short statements, so that they
    /// don't queue behind it.
    pub fn heavy(mut self) -> Self {
        self.heavy = true;
        self
    }
}

/// Returns the text for SQLite: with numbered parameters, without the server's time, and with its hint, which
/// is a comment to PostgreSQL.
///
/// A hint follows the name of a table: `/*+ INDEXED BY name */`. Without statistics, SQLite may prefer the
/// primary key to an index that finds far fewer rows. If the index is missing the statement fails, so a stale
/// hint is noticed.
pub(super) fn for_sqlite(text: &str) -> String {
    let text = &text.replace(SERVER_TIME, "NULL");
    let Some((before, rest)) = text.split_once("/*+ ") else { return numbered_parameters(text) };
    let Some((hint, after)) = rest.split_once(" */") else { return numbered_parameters(text) };
    numbered_parameters(&format!("{before}{hint}{after}"))
}

/// Returns the text with `?1` for `$1`. SQLite reads `$1` as a name, and numbers names by their first
/// appearance. Literals, quoted names and comments stay unchanged.
fn numbered_parameters(text: &str) -> String {
    if !text.contains(['\'', '"']) && !text.contains("--") {
        // Every dollar sign begins a parameter.
        return text.replace('$', "?");
    }
    let mut out = String::with_capacity(text.len());
    let mut inside: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match inside {
            Some(end) => {
                // A doubled quote inside a literal closes and reopens it, to the same effect.
                if character == end {
                    inside = None;
                }
                out.push(character);
            }
            None => match character {
                '\'' | '"' => {
                    inside = Some(character);
                    out.push(character);
                }
                '-' if characters.peek() == Some(&'-') => {
                    inside = Some('\n');
                    out.push(character);
                }
                '$' if characters.peek().is_some_and(char::is_ascii_digit) => out.push('?'),
                _ => out.push(character),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_apply_to_sqlite_only() {
        let text = "SELECT 1 FROM t /*+ INDEXED BY t_a */ WHERE a = $1";
        assert_eq!(for_sqlite(text), "SELECT 1 FROM t INDEXED BY t_a WHERE a = ?1");
        assert_eq!(for_sqlite("SELECT $1 /* not a hint */"), "SELECT ?1 /* not a hint */");
    }

    #[test]
    fn sqlite_has_no_server_time() {
        assert_eq!(for_sqlite(&format!("SELECT {SERVER_TIME} AS now, $1")), "SELECT NULL AS now, ?1");
    }

    #[test]
    fn literals_and_comments_are_kept() {
        let cases = [
            ("SELECT $2, $1", "SELECT ?2, ?1"),
            ("SELECT '$1', $1, 'it''s $2', \"$3\", $12", "SELECT '$1', ?1, 'it''s $2', \"$3\", ?12"),
            ("SELECT $1 -- not $2\n, $2", "SELECT ?1 -- not $2\n, ?2"),
            ("SELECT 1 - $1, '€$1', $", "SELECT 1 - ?1, '€$1', $"),
            ("VALUES ($1, $2), ($3, $40)", "VALUES (?1, ?2), (?3, ?40)"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(numbered_parameters(text), expected);
        }
    }
}
