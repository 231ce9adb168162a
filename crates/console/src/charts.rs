//! Charts: stacked bars as SVG, with a legend. Values are integers in the smallest unit. Only the positions
//! of bars are rounded, with integer arithmetic.

use std::fmt::Display;

use kernel::money::Pico;

use crate::show::{self, Column, Money};

/// The maximum number of series in a chart: the largest ones, and the others combined.
pub const MAX_SERIES: usize = 12;

/// The height of the drawing, in its own units. The browser stretches it.
pub const HEIGHT: i128 = 1_000;

/// The width of a column, and the width of the bar in it.
pub const COLUMN: usize = 10;
pub const BAR: usize = 8;

/// The approximate maximum size of a chart's bars in bytes. Larger charts combine more series.
const MAX_BYTES: usize = 26_000;

/// The size of a bar without its title, in bytes.
const BAR_BYTES: usize = 62;

/// A series: its value in each column of a chart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    pub name: String,
    /// The values, in the smallest unit of the measure.
    pub values: Vec<i128>,
}

impl Series {
    /// The sum of all values.
    pub fn total(&self) -> i128 {
        self.values.iter().sum()
    }
}

/// The unit of a chart's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit<'a> {
    /// Whole numbers, such as tokens.
    Count,
    /// 1e-12 of this currency.
    Pico(&'a str),
}

impl Unit<'_> {
    /// Returns a value with all its digits.
    fn exact(self, value: i128) -> String {
        match self {
            Self::Count => show::number(value),
            Self::Pico(currency) => kernel::currencies::format(Pico::from_units(value), currency),
        }
    }

    /// Returns the figures of a column of values.
    fn figures(self, values: &[i128]) -> Vec<Money> {
        match self {
            Self::Count => values.iter().map(|value| Money::text(self.exact(*value))).collect(),
            Self::Pico(currency) => {
                let amounts = || values.iter().map(|value| Pico::from_units(*value));
                let column = Column::new(currency, amounts());
                amounts().map(|amount| column.write(amount)).collect()
            }
        }
    }
}

/// A chart of stacked bars, one for each column. `components.html` has the macro that shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chart {
    /// A description of the chart for screen readers.
    pub label: String,
    pub bars: Vec<Bar>,
    /// The legend of the bars, from the bottom to the top. The largest series is first.
    pub legend: Vec<Entry>,
    /// The sum of all values.
    pub total: Money,
    /// The values at the top, in the middle and at the bottom of the scale.
    pub scale: [String; 3],
    /// The labels of the first column, a column in the middle, and the last column.
    pub ends: Vec<String>,
    /// The width of the drawing, in its own units.
    pub width: usize,
}

/// A part of a bar: one series in one column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bar {
    pub class: &'static str,
    pub x: usize,
    pub y: i128,
    pub height: i128,
    /// The column, the series and the figure.
    pub title: String,
}

/// A line of the legend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub class: &'static str,
    pub name: String,
    pub total: Money,
}

/// The CSS classes of the colors, in the order of the series. The last class is for the sum of the other
/// series.
const CLASSES: [&str; MAX_SERIES] =
    ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s0"];

impl Chart {
    /// Returns a chart of these series. Each has a value for every column.
    pub fn new(label: String, columns: &[String], series: Vec<Series>, unit: Unit<'_>) -> Self {
        let total: i128 = series.iter().map(Series::total).sum();
        let sums: Vec<i128> = (0..columns.len()).map(|column| sum_of(&series, column)).collect();
        let top = round_up(sums.into_iter().max().unwrap_or(0));
        let (series, bars) = fit(columns, &sorted(series), top, unit);
        let totals: Vec<_> = series.iter().map(|(_, series)| series.total()).chain([total]).collect();
        let mut figures = unit.figures(&totals);
        let total = figures.pop().unwrap_or_else(|| Money::text(String::new()));
        let legend = series.iter().zip(figures).map(|((class, series), total)| Entry {
            class,
            name: series.name.clone(),
            total,
        });
        let middle = if top % 2 == 0 { short(&unit.exact(top / 2)) } else { String::new() };
        Self {
            label,
            legend: legend.collect(),
            bars,
            total,
            scale: [short(&unit.exact(top)), middle, short(&unit.exact(0))],
            ends: ends(columns),
            width: columns.len().max(1) * COLUMN,
        }
    }

    /// Returns `true` if the chart has nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }
}

/// Returns the sum of all series in a column. A negative value doesn't lower the bars of other series.
fn sum_of(series: &[Series], column: usize) -> i128 {
    series.iter().filter_map(|series| series.values.get(column)).map(|value| (*value).max(0)).sum()
}

/// Sorts the series by size, largest first.
fn sorted(mut series: Vec<Series>) -> Vec<Series> {
    series.sort_by(|a, b| b.total().cmp(&a.total()).then_with(|| a.name.cmp(&b.name)));
    series
}

/// Returns as many series and their bars as fit on a page: at most [`MAX_SERIES`].
fn fit(
    columns: &[String],
    series: &[Series],
    top: i128,
    unit: Unit<'_>,
) -> (Vec<(&'static str, Series)>, Vec<Bar>) {
    let values = series.iter().flat_map(|series| &series.values).filter(|value| **value > 0);
    let longest = values.chain([&top]).map(|value| unit.exact(*value).len()).max().unwrap_or(0);
    let mut most = series.len().clamp(1, MAX_SERIES);
    loop {
        let merged = merge(series.to_vec(), most);
        if most == 1 || bytes(columns, &merged, longest) <= MAX_BYTES {
            let bars = bars(columns, &merged, top, unit);
            return (merged, bars);
        }
        most -= 1;
    }
}

/// Returns the maximum size of the bars of these series in bytes. `longest` is the length of the longest
/// figure.
fn bytes(columns: &[String], series: &[(&'static str, Series)], longest: usize) -> usize {
    let column = columns.iter().map(String::len).max().unwrap_or(0);
    let of_series = series.iter().map(|(_, series)| {
        let bars = series.values.iter().filter(|value| **value > 0).count();
        let title = column.saturating_add(series.name.len()).saturating_add(longest).saturating_add(4);
        bars.saturating_mul(title.saturating_add(BAR_BYTES))
    });
    of_series.sum()
}

/// Returns the largest series. If the number of series exceeds `most`, the last is the sum of the others.
fn merge(mut series: Vec<Series>, most: usize) -> Vec<(&'static str, Series)> {
    let others = if series.len() > most { series.split_off(most.saturating_sub(1)) } else { Vec::new() };
    let mut merged: Vec<_> = CLASSES.into_iter().zip(series).collect();
    if let Some(first) = others.first() {
        let mut values = vec![0; first.values.len()];
        for (sum, column) in values.iter_mut().zip(0..) {
            *sum = others.iter().filter_map(|series| series.values.get(column)).sum();
        }
        let name = if merged.is_empty() { "All".to_owned() } else { format!("{} others", others.len()) };
        merged.push(("s0", Series { name, values }));
    }
    merged
}

fn bars(columns: &[String], series: &[(&'static str, Series)], top: i128, unit: Unit<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let mut below: i128 = 0;
        for (class, series) in series {
            let value = series.values.get(index).copied().unwrap_or(0);
            if value <= 0 {
                continue;
            }
            let from = position(below, top);
            below += value;
            // A value that is too small to be visible is drawn as a line.
            let height = (position(below, top) - from).max(2);
            bars.push(Bar {
                class,
                x: index * COLUMN + (COLUMN - BAR) / 2,
                y: (HEIGHT - from - height).max(0),
                height,
                title: format!("{column}, {}: {}", series.name, unit.exact(value)),
            });
        }
    }
    bars
}

/// Returns the height of a value, in units of the drawing.
fn position(value: i128, top: i128) -> i128 {
    value.checked_mul(HEIGHT).and_then(|high| high.checked_div(top)).unwrap_or(0)
}

/// Returns a figure without trailing zeros.
fn short(figure: &str) -> String {
    match figure.split_once('.') {
        Some((whole, fraction)) if fraction.trim_end_matches('0').is_empty() => whole.to_owned(),
        Some(_) => figure.trim_end_matches('0').to_owned(),
        None => figure.to_owned(),
    }
}

/// Returns the next number that consists of a digit other than 7 and 9, followed by zeros; at least 1.
fn round_up(value: i128) -> i128 {
    let mut step: i128 = 1;
    loop {
        for factor in [1, 2, 3, 4, 5, 6, 8] {
            match step.checked_mul(factor) {
                Some(top) if top >= value => return top,
                Some(_) => {}
                None => return value,
            }
        }
        step = step.saturating_mul(10);
    }
}

/// Returns the labels below the bars.
fn ends<T: Display>(columns: &[T]) -> Vec<String> {
    let last = columns.len().saturating_sub(1);
    let mut at = vec![0, last / 2, last];
    at.dedup();
    at.into_iter().filter_map(|index| columns.get(index)).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[i128]) -> Series {
        Series { name: name.into(), values: values.to_vec() }
    }

    #[test]
    fn bars_are_stacked_from_the_biggest() {
        let columns = ["a", "b", "c"].map(str::to_owned);
        let all = vec![series("small", &[1, 0, 0]), series("big", &[3, 2, 0])];
        let chart = Chart::new("Test".into(), &columns, all, Unit::Count);
        assert_eq!(chart.scale, ["4", "2", "0"]);
        let drawn: Vec<_> =
            chart.bars.iter().map(|bar| (bar.class, bar.x, bar.y, bar.height, bar.title.as_str())).collect();
        assert_eq!(
            drawn,
            [
                ("s1", 1, 250, 750, "a, big: 3"),
                ("s2", 1, 0, 250, "a, small: 1"),
                ("s1", 11, 500, 500, "b, big: 2"),
            ]
        );
        let legend: Vec<_> = chart.legend.iter().map(|e| format!("{} {}", e.name, e.total)).collect();
        assert_eq!(
            (legend, chart.total.to_string()),
            (vec!["big 5".to_owned(), "small 1".to_owned()], "6".into())
        );
        assert_eq!((chart.ends, chart.width), (columns.to_vec(), 30));
    }

    #[test]
    fn beyond_twelve_series_the_others_are_one() {
        let columns = ["a".to_owned()];
        let all = |count: i128| (1..=count).map(|n| series(&format!("n{n:02}"), &[n])).collect();
        let names = |chart: &Chart| {
            let entry = |e: &Entry| format!("{} {} {}", e.class, e.name, e.total);
            [chart.legend.first().map(entry), chart.legend.last().map(entry)].map(Option::unwrap)
        };
        let twelve = Chart::new(String::new(), &columns, all(12), Unit::Count);
        assert_eq!((twelve.legend.len(), names(&twelve)), (12, ["s1 n12 12", "s0 n01 1"].map(str::to_owned)));
        let more = Chart::new(String::new(), &columns, all(14), Unit::Count);
        let due = ["s1 n14 14".to_owned(), "s0 3 others 6".to_owned()];
        assert_eq!((more.legend.len(), names(&more)), (12, due));
        assert_eq!(more.total.to_string(), (1..=14).sum::<i128>().to_string());
        assert_eq!(more.bars.iter().map(|bar| bar.height).sum::<i128>(), 105 * HEIGHT / 200);
    }

    #[test]
    fn a_long_chart_tells_fewer_series_apart_and_loses_nothing() {
        let columns: Vec<_> = (0..366).map(|n| format!("2026-{n:05}")).collect();
        let name = "n".repeat(100);
        let all = (1..=12).map(|n| series(&format!("{name}{n}"), &vec![n; 366])).collect();
        let chart = Chart::new(String::new(), &columns, all, Unit::Count);
        assert_eq!((chart.legend.len(), chart.bars.len()), (1, 366));
        assert_eq!(chart.total.to_string(), "28,548");
        assert_eq!(chart.legend.first().map(|e| e.name.as_str()), Some("All"));
        let bytes: usize = chart.bars.iter().map(|bar| bar.title.len() + BAR_BYTES).sum();
        assert!(bytes < 36_000, "{bytes}");
    }

    #[test]
    fn bars_have_exact_amounts_and_the_legend_rounded_ones() {
        let columns = ["a".to_owned()];
        let all = vec![series("x", &[7_250_000_000_700]), series("y", &[2_000_000])];
        let chart = Chart::new(String::new(), &columns, all, Unit::Pico("USD"));
        let titles: Vec<_> = chart.bars.iter().map(|bar| bar.title.as_str()).collect();
        assert_eq!(titles, ["a, x: 7.2500000007", "a, y: 0.000002"]);
        let totals = chart.legend.iter().map(|entry| entry.total.clone().into_parts());
        assert_eq!(
            totals.chain([chart.total.into_parts()]).collect::<Vec<_>>(),
            [
                ("7.25".to_owned(), Some("7.2500000007 USD".to_owned())),
                ("0.000002".to_owned(), None),
                ("7.25".to_owned(), Some("7.2500020007 USD".to_owned())),
            ]
        );
        assert_eq!(chart.scale, ["8", "4", "0"]);
    }

    #[test]
    fn scale_ends_at_a_round_number() {
        let cases =
            [(0, 1), (1, 1), (3, 3), (5, 5), (7, 8), (9, 10), (11, 20), (21, 30), (1_234_567, 2_000_000)];
        for (value, top) in cases {
            assert_eq!(round_up(value), top, "{value}");
        }
        assert_eq!(round_up(i128::MAX), i128::MAX);
        let cases = [("0.00", "0"), ("25.00", "25"), ("0.0250", "0.025"), ("1,000", "1,000"), ("10", "10")];
        for (figure, written) in cases {
            assert_eq!(short(figure), written);
        }
    }

    #[test]
    fn what_was_taken_back_and_what_is_tiny_is_drawn_safely() {
        let columns = ["a".to_owned(), "b".to_owned()];
        let all = vec![series("x", &[1_000_000, -5]), series("y", &[1, 0])];
        let chart = Chart::new(String::new(), &columns, all, Unit::Count);
        let drawn: Vec<_> = chart.bars.iter().map(|bar| (bar.y, bar.height)).collect();
        assert_eq!(drawn, [(500, 500), (498, 2)]);
        assert_eq!(chart.total.to_string(), "999,996");
        assert!(Chart::new(String::new(), &[], Vec::new(), Unit::Count).is_empty());
    }
}
