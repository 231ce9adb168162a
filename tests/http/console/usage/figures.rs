//! Reads the figures of a report from its chart, its table, its file and the API: period, group, and a figure
//! without separators and trailing zeros.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use tollkeeper::money::Pico;

type Figures = Vec<(String, String, String)>;

/// Returns an exact number without separators and trailing zeros.
fn plain(figure: &str) -> String {
    Pico::parse(&figure.replace(',', "")).unwrap_or_else(|| panic!("{figure:?} isn't a number")).to_string()
}

/// Reverses the escaping of a page's text.
fn unescape(text: &str) -> String {
    let pairs = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (escaped, character)| text.replace(escaped, character))
}

/// Returns the texts between `start` and `end`.
fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).map(move |rest| rest.split(end).next().unwrap())
}

/// Returns the figures of the chart's tooltips.
pub fn of_chart(page: &str) -> Figures {
    let svg = between(page, "<svg", "</svg>").next().unwrap_or_default();
    let titles = between(svg, "<title>", "</title>").map(unescape);
    let mut figures: Figures = titles
        .map(|title| {
            let (period, rest) = title.split_once(", ").unwrap();
            let (name, figure) = rest.rsplit_once(": ").unwrap();
            (period.to_owned(), name.to_owned(), plain(figure))
        })
        .collect();
    figures.sort();
    figures
}

/// Returns the text of a cell; for an amount the exact one, which is the title of a rounded figure.
fn exact(cell: &str) -> String {
    let text = cell.split_once('>').unwrap().1;
    if let Some(title) = between(text, "title=\"", "\"").next() {
        return title.strip_suffix(" USD").unwrap().to_owned();
    }
    unescape(between(text, ">", "<").next().unwrap_or(text))
}

/// Returns the table's figures of this measure.
pub fn of_table(page: &str, show: &str) -> Figures {
    let table = between(page, "aria-label=\"Usage\"", "</table>").next().unwrap_or_default();
    let body = between(table, "<tbody>", "</tbody>").next().unwrap_or_default();
    let mut figures: Figures = between(body, "<tr>", "</tr>")
        .map(|row| {
            let cells: Vec<_> = between(row, "<td", "</td>").map(exact).collect();
            let sum = |a: &str, b: &str| {
                Pico::parse(&plain(a))
                    .unwrap()
                    .checked_add(Pico::parse(&plain(b)).unwrap())
                    .unwrap()
                    .to_string()
            };
            let figure = match show {
                "requests" => plain(&cells[2]),
                "tokens" => sum(&cells[3], &cells[4]),
                _ => plain(&cells[5]),
            };
            (cells[0].clone(), cells[1].clone(), figure)
        })
        .collect();
    figures.sort();
    figures
}

/// Returns the page's name for the period with this date.
fn period_name(period: &str, date: &str) -> String {
    match period {
        "day" => in_words(date),
        "week" => format!("Week of {}", in_words(date)),
        _ => in_words(date).split_once(' ').unwrap().1.to_owned(),
    }
}

/// Returns a date such as `2026-03-09` in the form `9 Mar 2026`.
fn in_words(date: &str) -> String {
    let parts: Vec<usize> = date.split('-').map(|part| part.parse().unwrap()).collect();
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    format!("{} {} {}", parts[2], names[parts[1] - 1], parts[0])
}

fn sum<'a>(figures: impl IntoIterator<Item = &'a str>) -> String {
    let units = figures.into_iter().map(|figure| Pico::parse(figure).unwrap().units()).sum();
    Pico::from_units(units).to_string()
}

/// Returns the figures of a CSV file.
pub fn of_csv(text: &str, period: &str, show: &str, by: &str, is_project: bool) -> Figures {
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty()).map(cells);
    let names = lines.next().unwrap();
    let mut figures: Figures = lines
        .map(|cells| {
            let of = |name: &str| {
                let index = names.iter().position(|other| other == name);
                cells[index.unwrap_or_else(|| panic!("{names:?} lack {name}"))].as_str()
            };
            let text = |name: &str| of(name).trim_start_matches('\'').to_owned();
            let group = match by {
                "model" => text("model"),
                "project" => text("project_name"),
                _ if is_project => text("api_key_name"),
                _ => format!("{} · {}", text("api_key_name"), text("project_name")),
            };
            let figure = match show {
                "requests" => sum([of("chat_requests"), of("embeddings_requests")]),
                "tokens" => {
                    sum(["chat_prompt_tokens", "chat_completion_tokens", "embeddings_tokens"].map(of))
                }
                _ => sum([of("chat_amount"), of("embeddings_amount")]),
            };
            assert_eq!(of("currency"), "USD");
            (period_name(period, of("date")), group, figure)
        })
        .collect();
    figures.sort();
    figures
}

/// Returns the cells of a line of a CSV file.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => {
                // Two quotes within a quoted cell stand for one quote.
                if !quoted && !cell.is_empty() {
                    cell.push('"');
                }
                quoted = !quoted;
            }
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

type Object = BTreeMap<String, Box<RawValue>>;

fn object(raw: &RawValue) -> Object {
    serde_json::from_str(raw.get()).unwrap()
}

/// Returns the figures of the API's answer; `name` returns the page's name for a group. Numbers are read as
/// exact text.
pub fn of_api(answer: &str, period: &str, show: &str, name: impl Fn(&Value) -> String) -> Figures {
    let whole: Object = serde_json::from_str(answer).unwrap();
    let data = object(&whole["data"]);
    let rows: Vec<Box<RawValue>> = serde_json::from_str(data["usage"].get()).unwrap();
    let mut figures: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for row in &rows {
        let group: Value = serde_json::from_str(row.get()).unwrap();
        let cells = object(row);
        let (chat, embeddings) = (object(&cells["chat"]), object(&cells["embeddings"]));
        let parts = match show {
            "tokens" => {
                let tokens = object(&chat["tokens"]);
                vec![tokens["prompt"].get(), tokens["completion"].get(), embeddings["tokens"].get()]
                    .into_iter()
                    .map(str::to_owned)
                    .collect()
            }
            measure => vec![chat[measure].get().to_owned(), embeddings[measure].get().to_owned()],
        };
        let date = period_name(period, group["date"].as_str().unwrap());
        // A project's report always distinguishes keys.
        figures.entry((date, name(&group))).or_default().extend(parts);
    }
    let sums = figures.into_iter().map(|((period, name), parts)| {
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        (period, name, sum(parts))
    });
    sums.collect()
}
