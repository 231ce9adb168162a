//! The steps of a history, and the expected answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Time};
use tollkeeper::web::route::Listener;

use super::books::{Books, Event, Reservation};
use super::figures::number;
use super::prices::{self, Price, REQUEST, Whole};
use support::chance::Chance;
use support::http::{Answer, Call};
use support::world::{Place, World};

/// The catalog. Its thresholds are low, so that short histories reach them, and its prices have fractions of
/// a nano.
pub const CATALOG: &str = r#"
volume_discounts = [
  { threshold = 150, discount = "0.05" },
  { threshold = 600, discount = "0.6125" },
]
[[models]]
id = "talk"
kind = "chat"
description = "Talk"
owned_by = "test"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 1000000
max_concurrent_requests = 3
prices = [
  { effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002000001", completion_tokens = "0.000006000333" },
]
[[models]]
id = "vector"
kind = "embeddings"
description = "Vector"
owned_by = "test"
created = 1704067200
dimension = 8
max_tokens = 8192
max_requests_per_min = 1000000
max_concurrent_requests = 1000
prices = [
  { effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000000100007" },
]
"#;
pub const TIERS: [(i128, i128); 2] = [(150, 50_000), (600, 612_500)];
pub const MODELS: [(&str, &str); 2] = [("talk", "chat"), ("vector", "embeddings")];
const CONCURRENT: [usize; 2] = [3, 1_000];
const SOURCE: &str = "engine";

/// A running history.
pub struct History<'w> {
    pub world: &'w World,
    pub place: Place,
    /// The ids and secrets of the keys.
    pub keys: Vec<(String, String)>,
    pub books: Books,
    pub tally: BTreeMap<&'static str, u64>,
    pub chance: Chance,
    /// The source of randomness for parts of usage and for components and conditions of prices.
    pub parts_chance: Chance,
    pub apps: Vec<(App, Dispatcher)>,
    /// The public listeners of the two servers.
    pub public: Vec<Dispatcher>,
    /// The number of steps so far.
    pub steps: usize,
    pub catalog: PathBuf,
    pub prices: [Vec<Price>; 2],
    pub seed: u64,
    log: Vec<String>,
    counter: u64,
}

impl<'w> History<'w> {
    pub async fn begin(world: &'w World, catalog: &Path, seed: u64) -> Self {
        let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        let public =
            [&world.app, &other].map(|app| tollkeeper::api::routes::dispatcher(&app.api, Listener::Public));
        let apps = [world.app.clone(), other]
            .map(|app| (app.clone(), tollkeeper::api::routes::dispatcher(&app.api, Listener::Service)));
        let owner = world.user("owner").await;
        let place = world.place(&owner, "Money").await;
        let mut keys = Vec::new();
        for name in ["one", "two"] {
            keys.push(world.old_key(&owner, &place, &json!({ "name": name })).await);
        }
        let long_ago = Time::parse("2024-01-01T00:00:00Z").unwrap().unix_ms();
        let talk = Price::new(long_ago, [2_000_001, 6_000_333], None);
        let vector = Price::new(long_ago, [100_007, 0], None);
        let month = world.clock.now().day().month().unix_months();
        let mut history = Self {
            world,
            place,
            keys,
            books: Books { open_month: month, limit: 20_000_000, ..Books::default() },
            tally: BTreeMap::new(),
            chance: Chance::new(seed),
            parts_chance: Chance::new(!seed),
            apps: apps.into(),
            public: public.into(),
            steps: 0,
            catalog: catalog.to_owned(),
            prices: [vec![talk], vec![vector]],
            seed,
            log: Vec::new(),
            counter: 0,
        };
        if history.has_parts() {
            history.put_in_force(Price { from_ms: history.now_ms(), ..talk }).await;
        }
        history
    }

    pub fn now_ms(&self) -> i64 {
        self.world.clock.now().unix_ms()
    }

    pub fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Fails the test and prints all steps.
    pub fn fail(&self, what: &str) -> ! {
        let log = self.log.join("\n");
        panic!("{}: seed {}: {what}\n{log}\n{:#?}", self.world.backend, self.seed, self.books)
    }

    pub fn assert_equal<T: PartialEq + std::fmt::Debug>(&self, what: &str, is: &T, due: &T) {
        if is != due {
            self.fail(&format!("{what} is {is:?}, expected {due:?}"));
        }
    }

    pub fn note(&mut self, what: String) {
        let now = self.world.clock.now();
        self.log.push(format!("{now} {what}"));
    }

    pub fn below(&mut self, bound: u8) -> u8 {
        u8::try_from(self.chance.below(bound.into())).unwrap()
    }

    pub fn next_reference(&mut self) -> String {
        self.counter += 1;
        format!("credit {}", self.counter)
    }

    pub fn one_app(&mut self) -> App {
        self.apps[self.chance.below(2)].0.clone()
    }

    /// Sends a GET request to one of the two servers, with a key, because a key is valid longer than a
    /// session.
    pub async fn get(&self, server: usize, path: &str) -> Answer {
        Call::new(&self.public[server], Method::GET, path).bearer(&self.keys[0].1).send().await
    }

    /// Sends a request to the service listener of one of the two servers.
    async fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let turn = self.chance.below(2);
        let (app, entrance) = &self.apps[turn];
        let call = Call::new(entrance, method.clone(), path).bearer(app.api.service_token.expose());
        let call = match body {
            Some(body) => call.json(body),
            None => call,
        };
        let answer = call.send().await;
        let sent = body.map(Value::to_string).unwrap_or_default();
        self.note(format!("{turn} {method} {path} {sent} -> {} {}", answer.status, answer.text));
        answer
    }

    pub async fn step(&mut self) {
        match self.chance.below(24) {
            0..=4 => self.reserve().await,
            5..=9 => self.report().await,
            10 => self.repeat().await,
            11..=14 => self.correct().await,
            15 => self.release().await,
            16 => self.extend().await,
            17 => self.credit().await,
            18 => self.change_price().await,
            19 => self.mark_paid().await,
            20 => self.void().await,
            _ => self.wait().await,
        }
        if let Some(wrong) = &self.books.wrong {
            self.fail(wrong);
        }
        self.name_returns().await;
        self.check_summary().await;
        // The servers take turns, so that each has cached totals when the other one closes a month.
        self.steps += 1;
        self.check_totals(self.steps % 2).await;
    }

    async fn reserve(&mut self) {
        let (key, model) = (self.chance.below(2), self.chance.one_of(&[0, 0, 0, 1]));
        let (name, kind) = MODELS[model];
        let prompt = self.chance.below(3_000) as i128;
        let most = self.chance.below(4_000) as i128;
        let question = json!({"credential": self.keys[key].1, "operation": kind, "model": name,
                              "estimated_prompt_tokens": prompt as i64, "max_tokens": most as i64});
        let text = self.ask(Method::POST, "/service/v1/authorize", Some(&question)).await.text;
        let answer: Value = serde_json::from_str(&text).unwrap();
        self.books.end_credits(self.now_ms());
        let pico = prices::most(&self.prices[model], self.now_ms(), prompt, most);
        let nano = (pico + 999).div_euclid(1_000);
        let code = if !self.books.may_reserve(nano) {
            "insufficient_quota"
        } else if self.books.live(model) >= CONCURRENT[model] {
            "model_concurrency_limited"
        } else {
            ""
        };
        let both = self.books.live(model) >= CONCURRENT[model];
        let said = answer["code"].as_str().unwrap_or_default();
        // If both limits are exceeded, the server may return either code.
        if !(code == "insufficient_quota" && both && said == "model_concurrency_limited") {
            self.assert_equal("the decision", &said, &code);
        }
        if code.is_empty() {
            self.count("reserved");
            let id = answer["reservation"]["id"]
                .as_str()
                .unwrap_or_else(|| self.fail("no reservation"))
                .to_owned();
            self.assert_equal(
                "the reserved amount",
                &number(&text, &["reservation", "amount"]),
                &decimal(nano, 9),
            );
            let until_ms = self.now_ms() + 10 * MINUTE_MS;
            self.books.reservations.insert(id, Reservation { nano, until_ms, model });
        } else {
            self.count(if code == "insufficient_quota" { "insufficient_quota" } else { "concurrency" });
        }
    }

    fn new_event(&mut self) -> (String, Event, Value) {
        self.counter += 1;
        let id = format!("e{}", self.counter);
        let (key, model) = (self.chance.below(2), self.chance.one_of(&[0, 0, 1]));
        let back = match self.chance.below(8) {
            0 => self.chance.below(50) as i64 * DAY_MS,
            1 => self.chance.below(30) as i64 * HOUR_MS,
            2 => -(self.chance.below(5 * 60 * 1_000) as i64),
            _ => self.chance.below(60_000) as i64,
        };
        let at_ms = self.now_ms() - back;
        let day = Time::from_unix_ms(at_ms).day();
        let prompt = self.chance.below(400) as i128;
        let completion = if model == 0 { self.chance.below(600) as i128 } else { 0 };
        let mut report = json!({"id": id, "source": SOURCE, "time": Time::from_unix_ms(at_ms).to_string(),
                                "api_key_id": self.keys[key].0, "model": MODELS[model].0, "kind": MODELS[model].1,
                                "prompt_tokens": prompt as i64, "completion_tokens": completion as i64});
        let mut cached = 0;
        if model == 0 && self.chance.below(2) == 0 {
            cached = self.chance.below(prompt as usize + 1) as i128;
            report["cached_prompt_tokens"] = json!(cached as i64);
            self.count("cached");
        }
        let (mut parts, mut tier) = ([0; prices::PARTS], "default");
        if model == 0 {
            (parts, tier) = (self.some_parts([prompt - cached, completion]), self.some_tier());
        }
        if parts != [0; prices::PARTS] {
            report["parts"] = prices::json_of(&parts);
            self.count("parts");
        }
        if tier != "default" {
            report["service_tier"] = json!(tier);
        }
        let price = prices::of_call(&self.prices[model], at_ms, prompt, tier);
        if price.parts[REQUEST].is_some() {
            parts[REQUEST] = 1;
        }
        self.count(if price.place() == 0 { "other price" } else { "conditional price" });
        let month_of_use = day.month().unix_months();
        let billed = month_of_use.max(self.books.open_month);
        if billed > month_of_use {
            self.count("late");
        }
        let event = Event {
            key,
            model,
            day: day.unix_days(),
            month_of_use,
            billed,
            booked: billed,
            price,
            prompt,
            cached,
            completion,
            parts,
            corrects: None,
            report: report.to_string(),
        };
        (id, event, report)
    }

    /// Reports one to three events in a request. Some of them capture a reservation.
    async fn report(&mut self) {
        let (mut events, mut reports, mut captured) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=self.chance.below(3) {
            let (id, event, mut report) = self.new_event();
            let mut held: Vec<String> = self.books.reservations.keys().cloned().collect();
            held.retain(|id| !captured.contains(id));
            if !held.is_empty() && self.chance.below(3) > 0 {
                let reservation = held[self.chance.below(held.len())].clone();
                report["reservation_id"] = json!(reservation);
                captured.push(reservation);
                self.count("captured");
            }
            reports.push(report.clone());
            events.push((id, Event { report: report.to_string(), ..event }));
        }
        let due = vec!["accepted"; events.len()];
        self.send_events(&reports, &due).await;
        self.books.record_events(events, &captured, self.now_ms());
    }

    async fn send_events(&mut self, reports: &[Value], due: &[&str]) {
        let answer =
            self.ask(Method::POST, "/service/v1/usage", Some(&json!({ "events": reports }))).await.json();
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        let said: Vec<&str> = results
            .iter()
            .map(|result| result["code"].as_str().unwrap_or(result["status"].as_str().unwrap_or_default()))
            .collect();
        self.assert_equal("the outcomes of the events", &said.as_slice(), &due);
    }

    /// Repeats an event, or reports a different event with the same id.
    async fn repeat(&mut self) {
        let known: Vec<&Event> = self.books.events.values().collect();
        if known.is_empty() {
            return;
        }
        let event = known[self.chance.below(known.len())];
        let mut report: Value = serde_json::from_str(&event.report).unwrap();
        if self.chance.below(2) == 0 {
            self.send_events(&[report.clone(), report], &["duplicate", "duplicate"]).await;
            self.count("repeated");
        } else {
            report["prompt_tokens"] = json!(
                report["prompt_tokens"].as_i64().unwrap() + if event.corrects.is_some() { -1 } else { 1 }
            );
            self.send_events(&[report], &["event_conflict"]).await;
            self.count("contradicted");
        }
    }

    async fn correct(&mut self) {
        let known: Vec<(String, Event)> =
            self.books.events.clone().into_iter().filter(|(_, e)| e.corrects.is_none()).collect();
        if known.is_empty() {
            return;
        }
        let (of, event) = known[self.chance.below(known.len())].clone();
        let before = |count: fn(&Event) -> i128| -> i128 {
            self.books.events.values().filter(|e| e.corrects.as_deref() == Some(&of)).map(count).sum()
        };
        let mut left_parts = event.parts;
        for (place, left) in left_parts.iter_mut().enumerate() {
            let taken = self.books.events.values().filter(|e| e.corrects.as_deref() == Some(&of));
            *left += taken.map(|e| e.parts[place]).sum::<i128>();
        }
        let left_cached = event.cached + before(|e| e.cached);
        let left_uncached =
            event.prompt + before(|e| e.prompt) - left_cached - prices::sum_of(&left_parts, Whole::Prompt);
        let left_completion =
            event.completion + before(|e| e.completion) - prices::sum_of(&left_parts, Whole::Completion);
        let [uncached, cached, completion] = [left_uncached, left_cached, left_completion]
            .map(|left| -(self.chance.below(left as usize + 1) as i128));
        let too_much = self.chance.below(6) == 0;
        // The correction takes back too much even if enough cached tokens or tokens of other parts are left.
        let prompt = cached + if too_much { -left_uncached - 1 } else { uncached };
        let parts = self.some_back(&left_parts);
        let prompt = prompt + prices::sum_of(&parts, Whole::Prompt);
        let completion = completion + prices::sum_of(&parts, Whole::Completion);
        if prompt == 0 && completion == 0 && parts == [0; prices::PARTS] {
            return;
        }
        self.counter += 1;
        let id = format!("c{}", self.counter);
        let mut report = json!({"id": id, "source": SOURCE, "time": self.world.clock.now().to_string(), "corrects": of,
                            "api_key_id": self.keys[event.key].0, "model": MODELS[event.model].0, "kind": MODELS[event.model].1,
                            "prompt_tokens": prompt as i64, "completion_tokens": completion as i64,
                            "cached_prompt_tokens": cached as i64});
        if parts != [0; prices::PARTS] {
            report["parts"] = prices::json_of(&parts);
            self.count("parts taken back");
        }
        if too_much {
            self.send_events(&[report.clone()], &["correction_too_large"]).await;
            if self.has_parts() {
                for count in ["prompt_tokens", "completion_tokens", "cached_prompt_tokens"] {
                    report[count] = json!(0);
                }
                report["parts"] = prices::one_search_more(&left_parts);
                self.send_events(&[report], &["correction_too_large"]).await;
            }
            return;
        }
        self.send_events(std::slice::from_ref(&report), &["accepted"]).await;
        let booked = event.billed.max(self.books.open_month);
        let of_billed = event.billed < booked;
        let (report, corrects) = (report.to_string(), Some(of));
        let correction = Event { booked, prompt, cached, completion, parts, corrects, report, ..event };
        let now_ms = self.now_ms();
        if of_billed {
            self.books.record_correction(id, correction, &TIERS, now_ms);
            self.count("credit note");
            if self.books.bills.iter().any(|bill| bill.notes.iter().any(|note| note.nano < 0)) {
                self.count("dearer by a correction");
            }
        } else {
            self.books.record_events(vec![(id, correction)], &[], now_ms);
        }
        self.count("correction");
    }

    fn some_reservation(&mut self) -> String {
        let held: Vec<String> = self.books.reservations.keys().cloned().collect();
        if held.is_empty() || self.chance.below(5) == 0 {
            return "res_01kfz3v9xee8tb2m6h0q5w7r4n".to_owned();
        }
        held[self.chance.below(held.len())].clone()
    }

    async fn release(&mut self) {
        let id = self.some_reservation();
        let status = self.ask(Method::DELETE, &format!("/service/v1/reservations/{id}"), None).await.status;
        let now_ms = self.now_ms();
        let due = if self.books.reservations.contains_key(&id) { 200 } else { 404 };
        if due == 200 {
            self.books.end_credits(now_ms);
            self.books.reservations.remove(&id);
            self.books.end_credits(now_ms);
        }
        self.assert_equal("the release", &status, &due);
        self.count("released");
    }

    async fn extend(&mut self) {
        let id = self.some_reservation();
        let path = format!("/service/v1/reservations/{id}/extend");
        let status = self.ask(Method::POST, &path, Some(&json!({}))).await.status;
        let now_ms = self.now_ms();
        if self.books.reservations.contains_key(&id) {
            self.books.end_credits(now_ms);
        }
        let until_ms = now_ms + 10 * MINUTE_MS;
        let due = self.books.reservations.get_mut(&id).map_or(404, |reservation| {
            reservation.until_ms = until_ms;
            200
        });
        self.assert_equal("the extension", &status, &due);
        self.count("extended");
    }

    /// Advances the clock. Sometimes the jobs don't run afterwards.
    async fn wait(&mut self) {
        let ms = match self.chance.below(8) {
            0..=2 => 20 * DAY_MS,
            3 => 3 * DAY_MS,
            4 => 11 * MINUTE_MS,
            5 => 25 * HOUR_MS,
            _ => MINUTE_MS,
        };
        self.world.clock.advance_ms(ms);
        self.note(format!("waited {ms} ms"));
        if self.chance.below(4) > 0 {
            self.work().await;
        }
    }
}

/// Formats a number of smallest units as an exact decimal.
pub fn decimal(units: i128, scale: u32) -> String {
    let step = 10_u128.pow(scale);
    let (whole, rest) = (units.unsigned_abs() / step, units.unsigned_abs() % step);
    let sign = if units < 0 { "-" } else { "" };
    let digits = format!("{rest:0width$}", width = scale as usize);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{digits}") }
}
