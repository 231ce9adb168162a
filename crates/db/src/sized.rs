//! Statements that write many rows at once, in a few fixed sizes, so that only a few statements have to be
//! prepared.

use std::fmt::Write;

/// The numbers of rows that a statement can have. Any number below 128 is a sum of at most seven of them.
const SIZES: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];

/// An SQL text for each of the sizes.
#[derive(Debug)]
pub struct Sizes(Vec<(usize, String)>);

impl Sizes {
    /// Builds the statements; `text` returns the SQL for a number of rows.
    pub fn new(text: impl Fn(usize) -> String) -> Self {
        Self(SIZES.into_iter().map(|size| (size, text(size))).collect())
    }

    /// Splits the rows into chunks, each with the text for its number of rows.
    pub fn chunks<'a, T>(&'static self, mut rest: &'a [T]) -> impl Iterator<Item = (&'static str, &'a [T])> {
        std::iter::from_fn(move || {
            let (size, text) = self.0.iter().find(|(size, _)| *size <= rest.len())?;
            let (chunk, left) = rest.split_at_checked(*size)?;
            rest = left;
            Some((text.as_str(), chunk))
        })
    }
}

/// Returns the placeholders of `rows` rows with `columns` columns: `($1, $2), ($3, $4)`.
pub fn values(rows: usize, columns: usize) -> String {
    let mut text = String::new();
    for row in 0..rows {
        text.push_str(if row == 0 { "(" } else { ", (" });
        for column in 1..=columns {
            let comma = if column == 1 { "" } else { ", " };
            // Writing to a string can't fail.
            write!(text, "{comma}${}", row * columns + column).ok();
        }
        text.push(')');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    #[test]
    fn rows_are_split_into_the_sizes() {
        static SIZES: LazyLock<Sizes> = LazyLock::new(|| Sizes::new(|rows| values(rows, 1)));
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
            let rows: Vec<usize> = (0..count).collect();
            let mut seen = Vec::new();
            for (text, chunk) in SIZES.chunks(&rows) {
                assert_eq!(text.matches('$').count(), chunk.len());
                seen.extend_from_slice(chunk);
            }
            assert_eq!(seen, rows);
        }
        assert_eq!(values(2, 3), "($1, $2, $3), ($4, $5, $6)");
    }
}
