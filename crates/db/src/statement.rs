//! One SQL text for both databases, with its values.

use std::borrow::Cow;

use crate::{Error, FromRow, Row, Tx, Value};

/// A statement with its parameters `$1…`, in their order.
#[must_use = "a statement does nothing until it is run"]
pub struct Statement {
    pub(super) text: Cow<'static, str>,
    pub(super) values: Vec<Value>,
    pub(super) heavy: bool,
    pub(super) batched: bool,
}

/// Where a text of the program is: a text is always in the same place, and no other ever is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    start: usize,
    length: usize,
}

impl Place {
    pub(super) fn of(text: &'static str) -> Self {
        Self { start: text.as_ptr().addr(), length: text.len() }
    }
}

/// The statement with this text. Every connection keeps what it prepared, so the texts must be few: values
/// are bound, never written into the text.
pub fn sql(text: impl Into<Cow<'static, str>>) -> Statement {
    Statement { text: text.into(), values: Vec::new(), heavy: false, batched: false }
}

/// How strong a row's lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Nobody else changes or locks the row.
    Change,
    /// The same, and nobody adds a row that refers to it.
    Removal,
}

impl Lock {
    /// How PostgreSQL is told.
    fn clause(self) -> &'static str {
        match self {
            Self::Change => "FOR NO KEY UPDATE",
            Self::Removal => "FOR UPDATE",
        }
    }
}

/// How much of the answer the caller wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Only how many rows changed.
    Count,
    /// The first row.
    First,
    /// All rows.
    All,
}

/// What a statement answered.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) changed: u64,
    pub(super) rows: Vec<Row>,
}

impl Statement {
    /// Gives the next parameter its value.
    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Gives the next parameters their values, a row's at once.
    pub fn bind_all<const N: usize>(mut self, values: [Value; N]) -> Self {
        self.values.extend(values);
        self
    }

    /// Makes room for so many values at once.
    pub fn expecting(mut self, values: usize) -> Self {
        self.values.reserve_exact(values);
        self
    }

    /// Says that it may read many rows: it then runs where it keeps nobody else waiting.
    pub fn heavy(mut self) -> Self {
        self.heavy = true;
        self
    }

    /// Says that it finds at most one row, by keys: read outside of a transaction it may then share a round trip with others of
    /// the same text. It must end where `LIMIT` may follow, and use its parameters where a column could stand.
    pub fn batched(mut self) -> Self {
        self.batched = true;
        self
    }

    /// Where its text is, if it may share a round trip.
    pub(super) fn place_in_batch(&self, want: Want) -> Option<Place> {
        match self.text {
            Cow::Borrowed(text) if self.batched && !self.heavy && want == Want::First => {
                Some(Place::of(text))
            }
            _ => None,
        }
    }

    /// Runs it; how many rows it changed.
    pub async fn execute(self, tx: &mut Tx) -> Result<u64, Error> {
        Ok(tx.run(self, Want::Count).await?.changed)
    }

    /// Runs it before the transaction's next statement, or before its commit. Where that spares a wait it does so only then, and
    /// its error comes there: for what nobody looks at the outcome of. Nothing is committed after an error of it.
    pub async fn defer(self, tx: &mut Tx) -> Result<(), Error> {
        tx.defer(self).await
    }

    /// Runs it right before the commit, after every other statement of the transaction: for a row that all transactions of a kind
    /// write, so that they wait for each other no longer than they must, and never in a circle. Nothing is committed after an error
    /// of it.
    pub fn at_commit(self, tx: &mut Tx) {
        tx.at_commit.push(self);
    }

    /// Takes the lock of the rows that this finds, like [`Statement::defer`]. Where one transaction at a time writes, as on SQLite, it
    /// holds that lock from its beginning, and nothing is run.
    pub async fn lock(mut self, tx: &mut Tx, lock: Lock) -> Result<(), Error> {
        self.text = Cow::Owned(format!("{} {}", self.text, lock.clause()));
        tx.lock(self).await
    }

    /// The first row, if there is one.
    pub async fn optional<T: FromRow>(self, tx: &mut Tx) -> Result<Option<T>, Error> {
        let answer = tx.run(self, Want::First).await?;
        answer.rows.first().map(T::from_row).transpose()
    }

    /// The first row. None at all is a mistake of ours.
    pub async fn one<T: FromRow>(self, tx: &mut Tx) -> Result<T, Error> {
        let row = self.optional(tx).await?;
        row.ok_or_else(|| Error::Internal("the statement gave no row, but one is always due".to_owned()))
    }

    /// All rows.
    pub async fn all<T: FromRow>(self, tx: &mut Tx) -> Result<Vec<T>, Error> {
        let answer = tx.run(self, Want::All).await?;
        answer.rows.iter().map(T::from_row).collect()
    }
}

/// The text as SQLite is to have it: with its numbered parameters, and with hints that PostgreSQL takes for comments. A hint
/// stands behind a table, `/*+ INDEXED BY name */`: SQLite keeps no statistics here, and may prefer the primary key to an index
/// that finds far fewer rows. Without that index the statement fails, so a hint can't outlive it unnoticed.
pub(super) fn for_sqlite(text: &str) -> String {
    let Some((before, rest)) = text.split_once("/*+ ") else { return numbered_parameters(text) };
    let Some((hint, after)) = rest.split_once(" */") else { return numbered_parameters(text) };
    numbered_parameters(&format!("{before}{hint}{after}"))
}

/// The text with SQLite's numbered parameters `?1` for `$1`. SQLite reads `$1` as a name and numbers names by
/// their first appearance, which is another order. Literals, quoted names and comments stay as they are.
fn numbered_parameters(text: &str) -> String {
    parameters(text, "?")
}

/// The text with this in place of the dollar sign of each parameter.
pub(super) fn parameters(text: &str, sign: &str) -> String {
    if !text.contains(['\'', '"']) && !text.contains("--") {
        // Nothing to keep apart: every dollar sign begins a parameter.
        return text.replace('$', sign);
    }
    let mut out = String::with_capacity(text.len());
    let mut inside: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match inside {
            Some(end) => {
                // A doubled quote inside a literal closes and opens it again, which comes to the same.
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
                '$' if characters.peek().is_some_and(char::is_ascii_digit) => out.push_str(sign),
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
    fn hints_are_for_sqlite_alone() {
        let text = "SELECT 1 FROM t /*+ INDEXED BY t_a */ WHERE a = $1";
        assert_eq!(for_sqlite(text), "SELECT 1 FROM t INDEXED BY t_a WHERE a = ?1");
        assert_eq!(for_sqlite("SELECT $1 /* not a hint */"), "SELECT ?1 /* not a hint */");
    }

    #[test]
    fn parameters_are_numbered_outside_of_literals() {
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
