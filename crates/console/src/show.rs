//! The formats of values on pages.

use std::borrow::Borrow;
use std::fmt::Display;

use askama::Template;
use askama::filters::HtmlSafe;
use kernel::clock::{Day, Month, Time};
use kernel::currencies;
use kernel::error::Error;
use kernel::money::{Nano, Pico, Ppm};
use kernel::shown::{self, Rounding};

/// A time, a day or a month, which templates pass by any number of references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date<T>(T);

impl From<Time> for Date<Time> {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

impl From<Day> for Date<Day> {
    fn from(day: Day) -> Self {
        Self(day)
    }
}

impl From<Month> for Date<Month> {
    fn from(month: Month) -> Self {
        Self(month)
    }
}

impl<D, T: Copy + Into<Self>> From<&T> for Date<D> {
    fn from(date: &T) -> Self {
        (*date).into()
    }
}

/// Returns a time to the minute, for example `10 Mar 2026, 09:30 UTC`.
pub fn minute(time: impl Into<Date<Time>>) -> String {
    shown::minute(time.into().0)
}

/// Returns a time to the second, for example `10 Mar 2026, 09:30:05 UTC`.
pub fn second(time: impl Into<Date<Time>>) -> String {
    shown::second(time.into().0)
}

/// Returns a day, for example `10 Mar 2026`.
pub fn day(day: impl Into<Date<Day>>) -> String {
    shown::day(day.into().0)
}

/// Returns a month, for example `Mar 2026`.
pub fn month(month: impl Into<Date<Month>>) -> String {
    shown::month(month.into().0)
}

/// Returns a count with its noun, for example `1 project` or `2 projects`.
pub fn count(number: impl Borrow<i64>, noun: &str) -> String {
    let number = number.borrow();
    let plural = if *number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", currencies::grouped(&number.to_string()))
}

/// Returns a fraction in percent, for example `5%`.
pub fn percent(fraction: impl Borrow<Ppm>) -> String {
    fraction.borrow().checked_mul(100).map_or_else(String::new, |percent| format!("{percent}%"))
}

/// Returns a sentence with the time to wait after this error, for example `Try again in 30 seconds.`
pub fn wait(error: &Error) -> String {
    let seconds =
        error.rate_limit.map_or(1, |limit| limit.retry_after_ms.saturating_add(999).div_euclid(1000));
    let time = match seconds {
        ..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", seconds.saturating_add(59).div_euclid(60)),
    };
    format!("Try again in {time}.")
}

/// Returns a whole number with thousands separators.
pub fn number(number: impl Display) -> String {
    currencies::grouped(&number.to_string())
}

/// An amount as a page shows it: a rounded figure with the exact amount as its title. A figure without a
/// title is exact.
#[derive(Clone, PartialEq, Eq, Debug, Template)]
#[template(path = "money.html")]
pub struct Money {
    shown: String,
    /// The exact amount with its currency, if the figure is rounded.
    exact: Option<String>,
    /// Blanks that align the figure with the others of its column.
    blanks: String,
}

/// The template escapes its texts.
impl HtmlSafe for Money {}

impl Money {
    fn new(amount: Pico, currency: &str, rounding: Rounding) -> Self {
        let exact = (shown::rounded(amount, currency, rounding) != amount).then(|| exact(amount, currency));
        Self { shown: shown::amount(amount, currency, rounding), exact, blanks: String::new() }
    }

    fn with_currency(mut self, currency: &str) -> Self {
        self.shown = format!("{} {currency}", self.shown);
        self
    }

    /// Returns a text without a title, such as a count.
    pub fn text(text: String) -> Self {
        Self { shown: text, exact: None, blanks: String::new() }
    }

    /// Returns the figure, and the exact amount if the figure is rounded.
    pub fn into_parts(self) -> (String, Option<String>) {
        (self.shown, self.exact)
    }
}

/// Returns an amount of usage, a cost or a payment with its currency, to the nearest figure.
pub fn money(amount: impl Into<Amount>, currency: &str) -> Money {
    Money::new(amount.into().0, currency, Rounding::Nearest).with_currency(currency)
}

/// Returns an amount that someone has with its currency, rounded down.
pub fn held(amount: impl Into<Amount>, currency: &str) -> Money {
    Money::new(amount.into().0, currency, Rounding::Down).with_currency(currency)
}

/// Returns an amount that someone owes with its currency, rounded up.
pub fn owed(amount: impl Into<Amount>, currency: &str) -> Money {
    Money::new(amount.into().0, currency, Rounding::Up).with_currency(currency)
}

/// Returns an amount with all its digits and its currency, for example `1,234.50 USD`.
pub fn exact(amount: impl Into<Amount>, currency: &str) -> String {
    format!("{} {currency}", currencies::format(amount.into().0, currency))
}

/// An amount of any scale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Amount(pub Pico);

impl From<Pico> for Amount {
    fn from(amount: Pico) -> Self {
        Self(amount)
    }
}

impl From<Nano> for Amount {
    fn from(amount: Nano) -> Self {
        // No balance comes near the limit of 128 bits.
        Self(amount.to_pico().unwrap_or_default())
    }
}

impl<T: Copy + Into<Self>> From<&T> for Amount {
    fn from(amount: &T) -> Self {
        (*amount).into()
    }
}

/// The format of a column of amounts: their decimal points are aligned, and the currency is in the heading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    currency: String,
    rounding: Rounding,
    decimals: usize,
}

impl Column {
    /// Returns the format for a column of usage, costs or payments.
    pub fn new<T: Into<Amount>>(currency: &str, amounts: impl IntoIterator<Item = T>) -> Self {
        Self::rounded(currency, Rounding::Nearest, amounts)
    }

    /// Returns the format for a column of amounts that someone has.
    pub fn held<T: Into<Amount>>(currency: &str, amounts: impl IntoIterator<Item = T>) -> Self {
        Self::rounded(currency, Rounding::Down, amounts)
    }

    /// Returns the format for a column of amounts that someone owes.
    pub fn owed<T: Into<Amount>>(currency: &str, amounts: impl IntoIterator<Item = T>) -> Self {
        Self::rounded(currency, Rounding::Up, amounts)
    }

    fn rounded<T: Into<Amount>>(
        currency: &str,
        rounding: Rounding,
        amounts: impl IntoIterator<Item = T>,
    ) -> Self {
        let figures = amounts.into_iter().map(|amount| shown::amount(amount.into().0, currency, rounding));
        let decimals = figures.map(|figure| decimals(&figure)).max().unwrap_or(0);
        Self { currency: currency.to_owned(), rounding, decimals }
    }

    /// Returns an amount without its currency.
    pub fn write(&self, amount: impl Into<Amount>) -> Money {
        let money = Money::new(amount.into().0, &self.currency, self.rounding);
        let decimals = decimals(&money.shown);
        let missing = self.decimals.saturating_sub(decimals);
        let point = if missing > 0 && decimals == 0 { POINT } else { "" };
        Money { blanks: format!("{point}{}", DIGIT.repeat(missing)), ..money }
    }

    /// Returns the currency's ISO 4217 code.
    pub fn currency(&self) -> &str {
        &self.currency
    }
}

/// Returns the number of digits after the decimal point.
fn decimals(figure: &str) -> usize {
    figure.split_once('.').map_or(0, |(_, digits)| digits.len())
}

/// Blanks that are as wide as a digit and as a decimal point.
const DIGIT: &str = "\u{2007}";
const POINT: &str = "\u{2008}";

/// The format of a column of amounts of several organizations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedColumn {
    /// The format if all amounts have the same currency.
    column: Option<Column>,
    rounding: Rounding,
}

impl SharedColumn {
    /// Returns the format for a column of amounts that organizations have.
    pub fn held<'a>(amounts: impl IntoIterator<Item = (Nano, &'a str)>) -> Self {
        Self::rounded(Rounding::Down, amounts)
    }

    /// Returns the format for a column of amounts that organizations owe.
    pub fn owed<'a>(amounts: impl IntoIterator<Item = (Nano, &'a str)>) -> Self {
        Self::rounded(Rounding::Up, amounts)
    }

    fn rounded<'a>(rounding: Rounding, amounts: impl IntoIterator<Item = (Nano, &'a str)>) -> Self {
        let (amounts, currencies): (Vec<_>, Vec<_>) = amounts.into_iter().unzip();
        let one = currencies.first().filter(|first| currencies.iter().all(|other| other == *first));
        Self { column: one.map(|currency| Column::rounded(currency, rounding, amounts)), rounding }
    }

    /// Returns the heading: the label, and the currency if it is the same for all amounts.
    pub fn heading(&self, label: &str) -> String {
        match &self.column {
            Some(column) => format!("{label} ({})", column.currency()),
            None => label.to_owned(),
        }
    }

    /// Returns an amount, with its currency if the heading has none.
    pub fn write(&self, amount: impl Into<Amount>, currency: &str) -> Money {
        match &self.column {
            Some(column) => column.write(amount),
            None => Money::new(amount.into().0, currency, self.rounding).with_currency(currency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(money: &Money) -> String {
        money.to_string()
    }

    #[test]
    fn rounded_figures_have_the_exact_amount_as_their_title() {
        let nano = |text| Nano::parse(text).unwrap();
        assert_eq!(html(&money(nano("1.5"), "USD")), "1.50 USD");
        assert_eq!(
            html(&money(Pico::parse("1234.5049").unwrap(), "USD")),
            "<span title=\"1,234.5049 USD\">1,234.50 USD</span>"
        );
        let below_zero = nano("-0.123456789");
        assert_eq!(
            [held(below_zero, "USD"), owed(below_zero, "USD"), money(below_zero, "USD")]
                .map(|money| html(&money)),
            ["-0.1235", "-0.1234", "-0.1235"]
                .map(|figure| format!("<span title=\"-0.123456789 USD\">{figure} USD</span>"))
        );
        assert_eq!(exact(below_zero, "USD"), "-0.123456789 USD");
        assert_eq!(
            html(&money(nano("2.001"), "<b>")),
            "<span title=\"2.001 &#60;b&#62;\">2.00 &#60;b&#62;</span>"
        );
        assert_eq!(Money::text("3".to_owned()).into_parts(), ("3".to_owned(), None));
    }

    #[test]
    fn decimal_points_of_a_column_are_aligned() {
        let amounts = ["0", "1234.5", "-0.000012", "7.129"].map(|text| Pico::parse(text).unwrap());
        let column = Column::held("USD", amounts);
        assert_eq!(
            amounts.map(|amount| html(&column.write(amount))),
            [
                "<span data-blanks=\"\u{2007}\u{2007}\u{2007}\u{2007}\">0.00</span>",
                "<span data-blanks=\"\u{2007}\u{2007}\u{2007}\u{2007}\">1,234.50</span>",
                "-0.000012",
                "<span title=\"7.129 USD\" data-blanks=\"\u{2007}\u{2007}\u{2007}\u{2007}\">7.12</span>",
            ]
        );
        let whole = Column::new("JPY", [Nano::from_units(2_500_000_000), Nano::from_units(1_000_000_000)]);
        assert_eq!(html(&whole.write(Nano::from_units(2_500_000_000))), "2.5");
        assert_eq!(
            html(&whole.write(Nano::from_units(1_000_000_000))),
            "<span data-blanks=\"\u{2008}\u{2007}\">1</span>"
        );
        assert_eq!(
            html(&Column::owed("USD", [Pico::parse("2").unwrap()]).write(Nano::from_units(1))),
            "0.000000001"
        );
    }

    #[test]
    fn a_currency_that_all_share_is_in_the_heading() {
        let amounts = [(Nano::from_units(1_000_000_000), "USD"), (Nano::from_units(2_000_000_001), "USD")];
        let shared = SharedColumn::owed(amounts);
        assert_eq!(shared.heading("Due"), "Due (USD)");
        assert_eq!(html(&shared.write(amounts[1].0, "USD")), "<span title=\"2.000000001 USD\">2.01</span>");
        let mixed = SharedColumn::held([amounts[0], (Nano::from_units(5_000_000_000), "JPY")]);
        assert_eq!(mixed.heading("Balance"), "Balance");
        assert_eq!(html(&mixed.write(Nano::from_units(5_000_000_000), "JPY")), "5 JPY");
        assert_eq!(SharedColumn::held([]).heading("Balance"), "Balance");
    }
}
