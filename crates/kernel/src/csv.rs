//! Lines of CSV (RFC 4180), for spreadsheets and other programs.

use std::fmt::Display;

/// A cell of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// A value that the service makes: a number, a time, an id, a word.
    Value(String),
    /// A text that somebody wrote.
    Text(String),
}

impl Cell {
    pub fn value(value: impl Display) -> Self {
        Self::Value(value.to_string())
    }

    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Returns the cell as it is written.
    pub fn quoted(self) -> String {
        quote(match self {
            Self::Value(value) => value,
            Self::Text(text) => escape_formula(&text),
        })
    }
}

/// Adds a line of cells to a text.
pub fn add_line(text: &mut String, cells: impl IntoIterator<Item = Cell>) {
    for (index, cell) in cells.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&cell.quoted());
    }
    text.push_str("\r\n");
}

/// Quotes a cell if needed; semicolons and tabs are separators in some locales.
fn quote(cell: String) -> String {
    if cell.contains(['"', ',', ';', '\t', '\r', '\n']) || cell != cell.trim() {
        return format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell
}

/// What a formula begins with.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
/// What separates cells or lines somewhere. Quotes don't protect them from a spreadsheet that separates by something else
/// than commas: they stand in the middle of what is a cell there.
const SEPARATORS: [char; 4] = [';', '\t', '\r', '\n'];

/// Prefixes what spreadsheets would read as a formula with an apostrophe, at the beginning of a text and after separators.
/// The text was written by one person, and the file is opened by others.
fn escape_formula(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    if text.starts_with(['\t', '\r', '\n']) {
        escaped.push('\'');
    }
    // Where a cell may begin; quotes after it may be taken away.
    let mut start = Some(escaped.len());
    for c in text.chars() {
        if let Some(at) = start.filter(|_| FORMULA.contains(&c)) {
            escaped.insert(at, '\'');
        }
        start = start.filter(|_| c == '"');
        escaped.push(c);
        if SEPARATORS.contains(&c) {
            start = Some(escaped.len());
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_never_formulas() {
        let cases = [
            ("Prod", "Prod"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("a;=1+1", "\"a;'=1+1\""),
            ("x;=1+1;y", "\"x;'=1+1;y\""),
            ("a;b;+1;@c", "\"a;b;'+1;'@c\""),
            ("a;b=1", "\"a;b=1\""),
            ("a;", "\"a;\""),
            // A spreadsheet that separates by semicolons takes the quotes away, too.
            ("x;\"=1+1;y", "\"x;'\"\"=1+1;y\""),
            ("x;\"\"\"-1\"", "\"x;'\"\"\"\"\"\"-1\"\"\""),
            ("x;\"a=1", "\"x;\"\"a=1\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("two\n=1", "\"two\n'=1\""),
            ("two\r\n=1", "\"two\r\n'=1\""),
            ("a\t＝1", "\"a\t'＝1\""),
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "\"'\t'=1\""),
            ("\"=1\"", "\"'\"\"=1\"\"\""),
            ("＝1", "'＝1"),
            ("a=1", "a=1"),
            ("", ""),
        ];
        for (text, cell) in cases {
            assert_eq!(Cell::text(text).quoted(), cell);
        }
    }

    #[test]
    fn line_ends_with_crlf() {
        let mut text = String::new();
        add_line(&mut text, [Cell::value(-5), Cell::text("-5"), Cell::text("")]);
        add_line(&mut text, [Cell::value("a,b")]);
        assert_eq!(text, "-5,'-5,\r\n\"a,b\"\r\n");
    }
}
