//! Reads CSV by RFC 4180, so that tests can compare files with the expected content.

use std::collections::BTreeMap;

/// The cells of a line, by the names of their columns.
pub type Row = BTreeMap<String, String>;

/// Returns the lines of a file after its header. Asserts that each has as many cells as the header and ends
/// with CRLF.
pub fn rows(text: &str) -> Vec<Row> {
    let mut lines = lines(text).into_iter();
    let names = lines.next().expect("a file has a line of names");
    let row = |cells: Vec<String>| {
        assert_eq!(cells.len(), names.len(), "{cells:?}");
        names.iter().cloned().zip(cells).collect()
    };
    lines.map(row).collect()
}

fn lines(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut characters = text.chars().peekable();
    let mut is_quoted = false;
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            '\r' if !is_quoted => {
                assert_eq!(characters.next(), Some('\n'), "a line ends with CRLF");
                cells.push(std::mem::take(&mut cell));
                lines.push(std::mem::take(&mut cells));
            }
            _ => cell.push(character),
        }
    }
    assert!(
        !is_quoted && cells.is_empty() && cell.is_empty(),
        "the last line is complete: {cells:?} {cell:?}"
    );
    lines
}
