//! The parts of statements that add to rows without exceeding 64 bits.

use crate::store::amounts::{MAX_PICO, PICO_PER_WHOLE};

/// The parts of a statement that adds to rows of a table with the columns `requests`, `prompt_tokens`,
/// `completion_tokens`, `amount_whole` and `amount_pico`.
///
/// No sum exceeds 64 bits: a row that would overflow isn't changed. Pico are carried into whole units only
/// when they would exceed the limit of a row.
pub(super) struct Accumulation {
    /// The sums of these columns, for SET.
    pub set: String,
    /// The resulting amount of the row, in whole units and pico.
    pub whole: String,
    pub pico: String,
    /// The condition for rows that can hold the sums.
    pub fits: String,
}

impl Accumulation {
    /// Returns the parts for a table whose rows have these limits, in either direction.
    pub fn of(table: &str, most: RowLimits) -> Self {
        let AmountSum { whole, pico, fits: amount_fits } = AmountSum::of(table, "amount", most);
        let set = format!(
            "requests = {table}.requests + excluded.requests,
             prompt_tokens = {table}.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = {table}.completion_tokens + excluded.completion_tokens,
             amount_whole = {whole},
             amount_pico = {pico}"
        );
        let [prompt, completion] =
            ["prompt_tokens", "completion_tokens"].map(|column| tokens_fit(table, column, most.half_tokens));
        let fits = format!("{prompt} AND {completion} AND {amount_fits}");
        Self { set, whole, pico, fits }
    }
}

/// The parts of a statement that adds to an amount of two columns, `…_whole` and `…_pico`.
pub(super) struct AmountSum {
    /// The resulting amount of the row, in whole units and pico.
    pub whole: String,
    pub pico: String,
    /// The condition for rows that can hold the sum.
    pub fits: String,
}

impl AmountSum {
    /// Returns the parts of the statements for the amount with this name.
    pub fn of(table: &str, name: &str, most: RowLimits) -> Self {
        let (old, new) = (format!("{table}.{name}_pico"), format!("excluded.{name}_pico"));
        let (half, per_whole) = (MAX_PICO / 2, PICO_PER_WHOLE);
        let fits = format!("{old} / 2 + {new} / 2 BETWEEN -{half} AND {half}");
        let pico = format!(
            "(CASE WHEN {fits} THEN {old} + {new} ELSE {old} % {per_whole} + {new} % {per_whole} END)"
        );
        let carry = format!("(CASE WHEN {fits} THEN 0 ELSE {old} / {per_whole} + {new} / {per_whole} END)");
        let whole = format!("({table}.{name}_whole + excluded.{name}_whole + {carry})");
        // Each half is rounded toward zero, so the sum of halves is off by one at most, and so is the sum of
        // whole units.
        let most_whole = most.whole + 2;
        let fits = format!(
            "{table}.{name}_whole + excluded.{name}_whole + {old} / {per_whole} + {new} / {per_whole}
                 BETWEEN -{most_whole} AND {most_whole}"
        );
        Self { whole, pico, fits }
    }
}

/// The limits of a row.
#[derive(Clone, Copy)]
pub(super) struct RowLimits {
    /// Whole units of the currency.
    pub whole: i128,
    /// Half of the maximum number of tokens of either kind.
    pub half_tokens: i64,
}

/// Returns the condition for rows that can hold the sum of a column of tokens.
pub(super) fn tokens_fit(table: &str, column: &str, half: i64) -> String {
    format!("{table}.{column} / 2 + excluded.{column} / 2 BETWEEN -{half} AND {half}")
}
