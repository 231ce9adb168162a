//! The figures of the API, compared with the model's books.

use std::collections::BTreeMap;

use http::Method;
use serde_json::value::RawValue;
use tollkeeper::clock::{Day, Month};

use super::books::{Event, NANO};
use super::history::{History, MODELS, TIERS, decimal};
use support::http::Call;

impl History<'_> {
    async fn read(&self, path: &str) -> String {
        self.read_at(0, path).await
    }

    async fn read_at(&self, server: usize, path: &str) -> String {
        let answer = self.get(server, path).await;
        if answer.status != 200 {
            self.fail(&format!("{path}: {}", answer.text));
        }
        answer.text
    }

    /// Checks every figure of the API, and runs the audit.
    pub async fn check(&mut self) {
        let report = tollkeeper::billing::audit::check(&self.one_app().billing, None).await.unwrap();
        if !report.drifts.is_empty() {
            self.fail(&format!("the audit finds {:?}", report.drifts));
        }
        self.check_summary().await;
        self.check_invoices().await;
        self.check_usage().await;
        self.check_documents().await;
        self.check_exports().await;
        self.check_credits().await;
        self.check_movements().await;
        self.check_listed_credits().await;
        for server in [0, 1] {
            self.check_totals(server).await;
        }
    }

    /// Checks the balance, and the cost of the month so far.
    pub async fn check_summary(&self) {
        let text = self.read(&format!("{}/billing/summary", self.place.organization_path())).await;
        let at = |path: &[&str]| number(&text, path);
        let available = self.books.posted - self.books.reserved();
        self.assert_equal("available", &at(&["data", "balance", "available"]), &decimal(available, 9));
        self.assert_equal(
            "reserved",
            &at(&["data", "balance", "reserved"]),
            &decimal(self.books.reserved(), 9),
        );
        let month = self.world.clock.now().day().month().unix_months();
        let running = decimal(self.books.bill_of(&TIERS, month).net(), 12);
        self.assert_equal("the running total", &at(&["data", "current_period", "total_amount"]), &running);
    }

    async fn check_invoices(&self) {
        let path = format!("{}/billing/invoices?page_size=100", self.place.organization_path());
        let text = self.read(&path).await;
        let list: Vec<Box<RawValue>> = serde_json::from_str(&number(&text, &["data", "invoices"])).unwrap();
        let said: Vec<(String, String, String)> = list
            .iter()
            .map(|invoice| {
                let at = |name| number(invoice.get(), &[name]);
                (at("period_start"), at("amount"), at("status"))
            })
            .collect();
        let due = self.books.bills.iter().rev().map(|bill| {
            let start = Month::from_unix_months(bill.month).start();
            (format!("\"{start}\""), decimal(bill.nano, 9), format!("\"{}\"", bill.status()))
        });
        self.assert_equal("the list of invoices", &said, &due.collect());
        for invoice in list {
            let items: Vec<Box<RawValue>> = serde_json::from_str(&number(invoice.get(), &["items"])).unwrap();
            let sum: i128 = items.iter().map(|item| units(&number(item.get(), &["amount"]))).sum();
            self.assert_equal("the sum of an invoice", &sum, &units(&number(invoice.get(), &["amount"])));
        }
    }

    /// Returns all rows of a list of the organization, read from one of the servers.
    async fn read_list(&self, server: usize, name: &str) -> Vec<Box<RawValue>> {
        let path = format!("{}/billing/{name}?page_size=100", self.place.organization_path());
        let (mut all, mut page) = (Vec::new(), 1);
        loop {
            let text = self.read_at(server, &format!("{path}&page={page}")).await;
            let rows: Vec<Box<RawValue>> = serde_json::from_str(&number(&text, &["data", name])).unwrap();
            if rows.is_empty() {
                self.assert_equal(
                    "the length of a list",
                    &number(&text, &["data", "total"]),
                    &all.len().to_string(),
                );
                return all;
            }
            all.extend(rows);
            page += 1;
        }
    }

    /// Checks on each server that the movements add up to the balance, and that the CSV file has the same
    /// movements.
    async fn check_movements(&self) {
        for server in [0, 1] {
            let rows = self.read_list(server, "movements").await;
            let sum: i128 = rows.iter().map(|row| units(&number(row.get(), &["amount"]))).sum();
            self.assert_equal("the sum of the movements", &sum, &(self.books.posted * NANO));
            let path = format!("{}/billing/movements", self.place.organization_path());
            let call = Call::new(&self.public[server], Method::GET, &path).bearer(&self.keys[0].1);
            let file = call.header("accept", "text/csv").send().await.text;
            let listed = |row: &RawValue| {
                let [id, amount] = ["id", "amount"].map(|name| number(row.get(), &[name]));
                (id.trim_matches('"').to_owned(), amount)
            };
            let in_file = |line: &str| {
                let cells: Vec<_> = line.split(',').collect();
                (cells[0].to_owned(), cells[3].to_owned())
            };
            let said: Vec<_> = file.lines().skip(1).map(in_file).collect();
            self.assert_equal(
                "the file of the movements",
                &said,
                &rows.iter().map(|row| listed(row)).collect(),
            );
        }
    }

    /// Checks the list of credits.
    async fn check_listed_credits(&self) {
        let row = |row: &RawValue| ["id", "amount", "remaining"].map(|name| number(row.get(), &[name]));
        let mut said: Vec<_> = self.read_list(0, "credits").await.iter().map(|listed| row(listed)).collect();
        let lots = self.books.lots.iter();
        let mut due: Vec<_> = lots
            .map(|lot| [format!("\"{}\"", lot.id), decimal(lot.amount, 9), decimal(lot.left, 9)])
            .collect();
        said.sort();
        due.sort();
        self.assert_equal("the list of credits", &said, &due);
    }

    /// Checks the days of the last year, for the organization and for the project. They are read in two
    /// parts, because the length of a range is limited.
    async fn check_usage(&self) {
        let today = self.world.clock.now().day();
        let mut days: BTreeMap<Day, Cells> = BTreeMap::new();
        let mut keys: BTreeMap<(Day, usize), Cells> = BTreeMap::new();
        let range = (today.plus(-360), today.plus(2));
        for event in self.books.events.values() {
            let day = Day::from_unix_days(event.day);
            if day >= range.0 && day < range.1 {
                days.entry(day).or_default().add(event);
                keys.entry((day, event.key)).or_default().add(event);
            }
        }
        let query = format!("start_date={}&end_date={}", range.0, range.1);
        let text = self.read(&format!("{}/billing/usage?{query}", self.place.organization_path())).await;
        let rows: Vec<Box<RawValue>> = serde_json::from_str(&number(&text, &["data", "usage"])).unwrap();
        let said: Vec<_> =
            rows.iter().map(|row| (number(row.get(), &["date"]), Cells::said(row.get()))).collect();
        let due = days.iter().map(|(day, cells)| (format!("\"{day}\""), cells.shown()));
        self.assert_equal("usage by day", &said, &due.collect());
        let text = self.read(&format!("{}/usage?{query}", self.place.project_path())).await;
        let rows: Vec<Box<RawValue>> = serde_json::from_str(&number(&text, &["data", "usage"])).unwrap();
        let mut said: Vec<_> = rows
            .iter()
            .map(|row| {
                (number(row.get(), &["date"]), number(row.get(), &["api_key_id"]), Cells::said(row.get()))
            })
            .collect();
        let mut due: Vec<_> = keys
            .iter()
            .map(|((day, key), cells)| {
                (format!("\"{day}\""), format!("\"{}\"", self.keys[*key].0), cells.shown())
            })
            .collect();
        said.sort();
        due.sort();
        self.assert_equal("usage by day and key", &said, &due);
    }

    /// Checks the totals of usage on one of the servers.
    pub async fn check_totals(&self, server: usize) {
        let mut all = (0, 0);
        for (at, (id, _)) in self.keys.iter().enumerate() {
            let events: Vec<&Event> = self.books.events.values().filter(|event| event.key == at).collect();
            let requests = events.iter().filter(|event| event.corrects.is_none()).count();
            let tokens: i128 = events.iter().map(|event| event.prompt + event.completion).sum();
            let text = self.read_at(server, &format!("{}/api-keys/{id}", self.place.project_path())).await;
            let said = ["total_requests", "total_tokens"].map(|name| number(&text, &["data", "usage", name]));
            self.assert_equal("a key's totals", &said, &[requests.to_string(), tokens.to_string()]);
            all = (all.0 + requests, all.1 + tokens);
        }
        let text = self.read_at(server, &self.place.project_path()).await;
        let said = ["requests", "tokens"].map(|name| number(&text, &["data", "usage", name]));
        self.assert_equal("the project's totals", &said, &[all.0.to_string(), all.1.to_string()]);
    }
}

/// A row of a usage report.
#[derive(Default)]
struct Cells {
    requests: [i128; 2],
    prompt: [i128; 2],
    completion: i128,
    pico: [i128; 2],
}

impl Cells {
    fn add(&mut self, event: &Event) {
        let kind = usize::from(MODELS[event.model].1 == "embeddings");
        self.requests[kind] += i128::from(event.corrects.is_none());
        self.prompt[kind] += event.prompt;
        self.completion += event.completion;
        self.pico[kind] += event.pico();
    }

    fn shown(&self) -> Vec<String> {
        let [chat, embeddings] = self.requests;
        let mut cells =
            [chat, self.prompt[0], self.completion].iter().map(i128::to_string).collect::<Vec<_>>();
        cells.push(decimal(self.pico[0], 12));
        cells.extend([embeddings, self.prompt[1]].iter().map(i128::to_string));
        cells.push(decimal(self.pico[1], 12));
        cells
    }

    fn said(row: &str) -> Vec<String> {
        let paths: [&[&str]; 7] = [
            &["chat", "requests"],
            &["chat", "tokens", "prompt"],
            &["chat", "tokens", "completion"],
            &["chat", "amount"],
            &["embeddings", "requests"],
            &["embeddings", "tokens"],
            &["embeddings", "amount"],
        ];
        paths.iter().map(|path| number(row, path)).collect()
    }
}

/// Returns a number as text, because a float wouldn't be exact.
pub fn number(text: &str, path: &[&str]) -> String {
    let Some((first, rest)) = path.split_first() else {
        return text.to_owned();
    };
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap();
    number(fields.get(*first).unwrap_or_else(|| panic!("no {first} in {text}")).get(), rest)
}

/// Parses a decimal as pico.
fn units(text: &str) -> i128 {
    tollkeeper::money::Pico::parse(text).unwrap_or_else(|| panic!("{text}")).units()
}
