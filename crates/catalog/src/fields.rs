//! Reads the keys of one table of the catalog, and collects every mistake with its line, model and key.

use std::ops::RangeInclusive;

use super::{MAX_PRICE, is_model_id};
use document::{Entry, Node, Value, values};
use kernel::clock::Time;
use kernel::money::{Decimal, Pico, Ppm};

/// A table that is read into a model, a price or a discount.
pub struct Fields<'a, 'p> {
    file: &'a str,
    /// The name of the table in errors; `None` for the root table.
    label: Option<&'a str>,
    line: usize,
    entries: &'a [Entry],
    /// The keys that were asked for; any other is unknown.
    known: Vec<&'static str>,
    problems: &'p mut Vec<String>,
}

/// Returns the string, if the value is one.
pub fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

impl<'a, 'p> Fields<'a, 'p> {
    /// Starts reading the table on `line`.
    pub fn new(
        file: &'a str,
        label: Option<&'a str>,
        line: usize,
        entries: &'a [Entry],
        problems: &'p mut Vec<String>,
    ) -> Self {
        Self { file, label, line, entries, known: Vec::new(), problems }
    }

    /// Returns `true` if the key is there.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the line of a key that is there.
    pub fn line(&mut self, key: &'static str) -> Option<usize> {
        self.find(key).map(|entry| entry.line)
    }

    /// Reads an ISO 4217 code.
    pub fn currency(&mut self, key: &'static str) -> Option<String> {
        self.read(key, values::currency)
    }

    /// Reads a key that must be there; `read` returns `None` if the value is wrong.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        self.read(key, |value| read(value).ok_or_else(|| format!("expected {what}")))
    }

    /// Reads the id of a model.
    pub fn id(&mut self, key: &'static str) -> Option<String> {
        let what = "1 to 128 letters, digits and `. _ - / :`";
        self.required(key, what, |v| text(v).filter(|id| is_model_id(id)).map(str::to_owned))
    }

    /// Reads a text of 1 to `max` characters without control characters.
    pub fn text(&mut self, key: &'static str, max: usize) -> Option<String> {
        let fits = |t: &&str| (1..=max).contains(&t.chars().count()) && !t.chars().any(char::is_control);
        let what = format!("a text of 1 to {max} characters on one line");
        self.required(key, &what, |v| text(v).filter(fits).map(str::to_owned))
    }

    /// Reads a whole number within the range.
    pub fn whole<T: TryFrom<i64>>(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<T> {
        self.read(key, |value| values::whole(value, range))
    }

    /// Reads a boolean.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, values::boolean)
    }

    /// Reads an instant, as a string or as a TOML datetime.
    pub fn time(&mut self, key: &'static str) -> Option<Time> {
        self.required(key, "an instant such as \"2024-01-01T00:00:00Z\"", |value| match value {
            Value::Text(text) | Value::Datetime(text) => Time::parse(text),
            _ => None,
        })
    }

    /// Reads the price of a single token.
    pub fn price(&mut self, key: &'static str) -> Option<Pico> {
        let what = format!("a price of a single token from 0 to {MAX_PRICE} such as \"0.000002\"");
        self.decimal(key, &what, MAX_PRICE)
    }

    /// Reads a fraction from 0 to 1.
    pub fn fraction(&mut self, key: &'static str) -> Option<Ppm> {
        self.decimal(key, "a fraction from 0 to 1 such as \"0.05\"", 1)
    }

    fn decimal<const SCALE: u32>(
        &mut self,
        key: &'static str,
        what: &str,
        max: i64,
    ) -> Option<Decimal<SCALE>> {
        self.read(key, |value| {
            let number: Decimal<SCALE> = values::decimal(value, what)?;
            // A maximum that overflows would refuse every number but 0, which the tests of the built-in
            // catalog would show.
            let max = Decimal::from_units(10_i128.pow(SCALE)).checked_mul(max).unwrap_or_default();
            if (Decimal::ZERO..=max).contains(&number) { Ok(number) } else { Err(format!("expected {what}")) }
        })
    }

    /// Reads the entries of a list; empty if the key is absent.
    pub fn list(&mut self, key: &'static str) -> &'a [Node] {
        match self.find(key).map(|entry| &entry.node) {
            None => &[],
            Some(Node { value: Value::List(nodes), .. }) => nodes,
            Some(node) => {
                let found = node.value.shown();
                self.problem(node.line, &format!("`{key}`: expected a list, found {found}"));
                &[]
            }
        }
    }

    /// Reports a key that must not be there.
    pub fn refuse<T>(&mut self, key: &'static str, why: &str) -> Option<T> {
        let line = self.find(key).map_or(self.line, |entry| entry.line);
        self.problem(line, &format!("`{key}`: {why}"));
        None
    }

    /// Reports every key that wasn't asked for.
    pub fn finish(self) {
        let Self { file, label, entries, known, problems, .. } = self;
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let hint = document::did_you_mean(&entry.key, known.iter().copied());
            let message = format!("there is no key `{}`{hint}", entry.key);
            problems.push(place(file, label, entry.line, &message));
        }
    }

    fn find(&mut self, key: &'static str) -> Option<&'a Entry> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn read<T>(&mut self, key: &'static str, read: impl FnOnce(&'a Value) -> Result<T, String>) -> Option<T> {
        let Some(entry) = self.find(key) else {
            self.problem(self.line, &format!("the key `{key}` is missing"));
            return None;
        };
        match read(&entry.node.value) {
            Ok(value) => Some(value),
            Err(message) => {
                let found = entry.node.value.shown();
                self.problem(entry.node.line, &format!("`{key}`: {message}, found {found}"));
                None
            }
        }
    }

    fn problem(&mut self, line: usize, message: &str) {
        self.problems.push(place(self.file, self.label, line, message));
    }
}

fn place(file: &str, label: Option<&str>, line: usize, message: &str) -> String {
    match label {
        Some(label) => format!("{file}:{line}: {label}: {message}"),
        None => format!("{file}:{line}: {message}"),
    }
}
