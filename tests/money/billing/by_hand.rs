//! Recalculates the hand-written sums of a golden text exactly, without the service's arithmetic. Each figure
//! of a transcript must be the result of one of these sums.
//!
//! A line with ` = ` is a sum: words, a colon, the sum, the result, and more words. A sum may contain `x`,
//! `+`, `-`, parentheses, numbers with commas, and percentages. It may be `the lower of A and B`, and end in
//! `, rounded down` or `, rounded up`, which rounds to nine decimals, the unit of wallets and invoices. Lines
//! without ` = ` are comments.

use std::iter::Peekable;
use std::str::Chars;

/// A decimal number, stored as units of its last digit.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    units: i128,
    digits: u32,
}

/// The number of decimals of wallets and invoices.
const NANO_DIGITS: u32 = 9;

impl Decimal {
    fn scaled(self, digits: u32) -> i128 {
        self.units * 10_i128.pow(digits - self.digits)
    }

    fn join(self, other: Self, join: impl Fn(i128, i128) -> i128) -> Self {
        let digits = self.digits.max(other.digits);
        Self { units: join(self.scaled(digits), other.scaled(digits)), digits }
    }

    fn times(self, other: Self) -> Self {
        Self { units: self.units * other.units, digits: self.digits + other.digits }
    }

    fn rounded(self, up: bool) -> Self {
        let step = 10_i128.pow(self.digits.saturating_sub(NANO_DIGITS));
        let down = self.units.div_euclid(step);
        let units = if up && down * step != self.units { down + 1 } else { down };
        Self { units, digits: self.digits.min(NANO_DIGITS) }
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        let digits = self.digits.max(other.digits);
        self.scaled(digits) == other.scaled(digits)
    }
}

/// Parses the number at the beginning of a text.
fn number(text: &mut Peekable<Chars<'_>>) -> Option<Decimal> {
    let mut found: Option<Decimal> = None;
    let mut is_fraction = false;
    while let Some(c) = text.peek().copied() {
        match c {
            '0'..='9' => {
                let before = found.unwrap_or(Decimal { units: 0, digits: 0 });
                let figure = i128::from(c.to_digit(10)?);
                let digits = before.digits + u32::from(is_fraction);
                found = Some(Decimal { units: before.units * 10 + figure, digits });
            }
            '.' if found.is_some() && !is_fraction => is_fraction = true,
            ',' if found.is_some() && !is_fraction => {}
            '%' if found.is_some() => {
                text.next();
                return found.map(|of| Decimal { digits: of.digits + 2, ..of });
            }
            _ => break,
        }
        text.next();
    }
    found
}

fn skip_blanks(text: &mut Peekable<Chars<'_>>) {
    while text.next_if(|c| c.is_whitespace()).is_some() {}
}

fn factor(text: &mut Peekable<Chars<'_>>) -> Option<Decimal> {
    skip_blanks(text);
    if text.next_if_eq(&'-').is_some() {
        return factor(text).map(|of| Decimal { units: -of.units, ..of });
    }
    if text.next_if_eq(&'(').is_none() {
        return number(text);
    }
    let inner = terms(text)?;
    skip_blanks(text);
    text.next_if_eq(&')').map(|_| inner)
}

fn product(text: &mut Peekable<Chars<'_>>) -> Option<Decimal> {
    let mut result = factor(text)?;
    loop {
        skip_blanks(text);
        if text.next_if_eq(&'x').is_none() {
            return Some(result);
        }
        result = result.times(factor(text)?);
    }
}

fn terms(text: &mut Peekable<Chars<'_>>) -> Option<Decimal> {
    let mut result = product(text)?;
    loop {
        skip_blanks(text);
        if text.next_if_eq(&'+').is_some() {
            result = result.join(product(text)?, |a, b| a + b);
        } else if text.next_if_eq(&'-').is_some() {
            result = result.join(product(text)?, |a, b| a - b);
        } else {
            return Some(result);
        }
    }
}

fn sum(text: &str) -> Option<Decimal> {
    if let Some(of) = text.strip_suffix(", rounded down") {
        return sum(of).map(|exact| exact.rounded(false));
    }
    if let Some(of) = text.strip_suffix(", rounded up") {
        return sum(of).map(|exact| exact.rounded(true));
    }
    if let Some((a, b)) = text.strip_prefix("the lower of ").and_then(|both| both.split_once(" and ")) {
        return Some(sum(a)?.join(sum(b)?, i128::min));
    }
    let mut rest = text.chars().peekable();
    let result = terms(&mut rest)?;
    rest.next().is_none().then_some(result)
}

/// Returns the result of a line that is a sum. Panics if the result is wrong.
fn result(line: &str) -> Option<Decimal> {
    let (left, right) = line.split_once(" = ")?;
    let left = left.rsplit_once(": ").map_or(left, |(_, sum)| sum).trim();
    let said = factor(&mut right.chars().peekable()).unwrap_or_else(|| panic!("no result: {line}"));
    let is = sum(left).unwrap_or_else(|| panic!("no sum: {line}"));
    assert_eq!(is, said, "{line}");
    Some(said)
}

/// Returns the figures of a transcript that need a sum: amounts of lines and invoices, amounts due, balances
/// of the wallet and of credits.
fn figures(story: &str) -> Vec<(String, Decimal)> {
    let mut found = Vec::new();
    let mut take = |line: &str, text: &str| {
        let figure = factor(&mut text.trim().chars().peekable());
        found.push((line.to_owned(), figure.unwrap_or_else(|| panic!("no figure in {text}: {line}"))));
    };
    for line in story.lines() {
        if let Some((_, stand)) = line.split_once("= wallet ") {
            take(line, stand);
            let parts: Vec<_> = stand.split(" of ").collect();
            let left = parts.iter().filter_map(|part| part.rsplit_once(' '));
            left.filter(|(before, _)| before.ends_with('`')).for_each(|(_, left)| take(line, left));
            stand.split("; ").filter(|part| part.contains(" due of ")).for_each(|due| take(line, due));
        } else if let Some((_, amount)) = line.split_once(" is closed: invoice ") {
            let (amount, due) = amount.split_once(" over ").and_then(|(_, of)| of.split_once(", ")).unwrap();
            take(line, amount);
            take(line, due);
        } else if let Some((_, invoice)) = line.strip_prefix("Invoice ").and_then(|of| of.split_once(": ")) {
            take(line, invoice);
            take(line, invoice.split_once(", ").unwrap().1);
        } else if let Some((_, amount)) = line.strip_prefix("  ").and_then(|item| item.rsplit_once(" = ")) {
            take(line, amount);
        }
    }
    found
}

/// Recalculates every sum, and checks that every figure of the transcript is one of the results. Zero needs
/// no sum.
pub fn check(sums: &str, story: &str) {
    let results: Vec<_> = sums.lines().filter_map(result).collect();
    for (line, figure) in figures(story) {
        let is_there = figure.units == 0 || results.contains(&figure);
        assert!(is_there, "no sum by hand comes to {figure:?} of\n{line}\nSums:\n{sums}");
    }
}

#[test]
fn sums_are_recalculated() {
    for good in [
        "1 + 2 x 3 = 7",
        "words: with: colons: (1,000 - 1) x 5% = 49.95 USD, and more",
        "the lower of 3 - 1 and 2.5 = 2",
        "0.0000000019, rounded down = 0.000000001",
        "0.0000000011, rounded up = 0.000000002",
        "-0.0000000011, rounded down = -0.000000002",
        "2 - 5 + -1 = -4",
    ] {
        assert!(result(good).is_some(), "{good}");
    }
    assert!(result("only words: 1 and 2").is_none());
    for bad in ["1 + 1 = 3", "1 + = 1", "1 + 1 2 = 2", "1 = x"] {
        assert!(std::panic::catch_unwind(|| result(bad)).is_err(), "{bad}");
    }
}

#[test]
fn figure_without_a_sum_fails() {
    let story = "2026-01-01 00:00  = wallet -1, open month 2026-02, credits: grant `a` 2 of 5; purchase `b 1` 3.5 of 4; 6 due of invoice 1\n\
                 2026-02-02 00:00  2026-01 is closed: invoice 1 over 7, 8 due\n\n\
                 Invoice 1 for 2026-01: 9 USD, 10 due, open\n  usage      words, 4 x: 5 x 0.5 = 2.5\n";
    let found: Vec<_> = figures(story).iter().map(|(_, of)| (of.units, of.digits)).collect();
    assert_eq!(found, [(-1, 0), (2, 0), (35, 1), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (25, 1)]);
    assert!(std::panic::catch_unwind(|| check("1 + 1 = 2", story)).is_err());
}
