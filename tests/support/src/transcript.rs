//! A readable transcript of one organization's books. Each step is a line, followed by its result.

use std::fmt::Write;

use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::credits::{self, AddedCredit, NewCredit};
use tollkeeper::billing::bookkeeping::{OperatorError, closing, invoice_changes};
use tollkeeper::billing::rules::books::Source;
use tollkeeper::clock::{Day, Time};
use tollkeeper::ids::{InvoiceId, OrganizationId};
use tollkeeper::money::Nano;

use tollkeeper::billing::store::invoices::Invoice;
use tollkeeper::trail::Trail;

use crate::billed;
use crate::database::Database;
use crate::world::{Place, TestUser, World};

/// An organization with two keys, and the transcript of its history.
pub struct Books<'a> {
    pub world: &'a World,
    pub ada: TestUser,
    pub place: Place,
    pub keys: [String; 2],
    /// The credential with which calls are authorized.
    secret: String,
    /// The id of the reservation of the last allowed call.
    reservation: Option<String>,
    pub story: String,
    /// The reported events in order. The first one is event 1.
    events: Vec<Value>,
}

/// The catalog of these tests.
pub const CATALOG: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/support/src/transcript.toml");

/// Runs a test with the catalog of these tests. The organization is created at `start`. At the end the
/// service's own audit must pass.
pub fn with_books(database: Database, start: &str, test: impl AsyncFnOnce(&mut Books)) {
    with_books_in(database, "USD", start, test);
}

/// Like [`with_books`], with another currency.
pub fn with_books_in(database: Database, currency: &str, start: &str, test: impl AsyncFnOnce(&mut Books)) {
    with_configured_books(database, &[CATALOG, ("TOLLKEEPER_BILLING__CURRENCY", currency)], start, test);
}

/// Like [`with_books`], with other settings, such as another catalog.
pub fn with_configured_books(
    database: Database,
    settings: &[(&str, &str)],
    start: &str,
    test: impl AsyncFnOnce(&mut Books),
) {
    database.run(settings, async |world| {
        let mut books = Books::open(&world, start).await;
        test(&mut books).await;
        billed::check(&world, &books.place.organization).await;
    });
}

impl<'a> Books<'a> {
    pub async fn open(world: &'a World, start: &str) -> Self {
        backdate_first_catalog(world).await;
        set_clock(world, start);
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (one, secret) = world.old_key(&ada, &place, &json!({ "name": "one" })).await;
        let (two, _) = world.old_key(&ada, &place, &json!({ "name": "two" })).await;
        let (keys, reservation) = ([one, two], None);
        Self { world, ada, place, keys, secret, reservation, story: String::new(), events: Vec::new() }
    }

    pub fn organization_id(&self) -> OrganizationId {
        OrganizationId::parse(&self.place.organization).unwrap()
    }

    pub fn write_line(&mut self, line: &str) {
        let now = self.world.clock.now().to_string();
        writeln!(self.story, "{} {}  {line}", &now[..10], &now[11..16]).unwrap();
    }

    /// Sets the clock.
    pub fn set_time(&mut self, time: &str) {
        set_clock(self.world, time);
    }

    /// Reports usage with the current time.
    pub async fn use_today(&mut self, model: &str, prompt: i64, completion: i64) {
        let today = self.world.clock.now().day();
        self.use_on_day(today, 0, model, prompt, completion).await;
    }

    /// Reports usage on a day by one of the two keys.
    pub async fn use_on_day(&mut self, day: Day, key: usize, model: &str, prompt: i64, completion: i64) {
        let now = self.world.clock.now();
        let (time, when) =
            if day == now.day() { (now, String::new()) } else { (day.start(), format!(" on {day}")) };
        self.report_usage(&time.to_string(), key, model, [prompt, completion]).await;
        self.write_line(&format!("{model} is used{when}: {prompt} + {completion} tokens"));
    }

    /// Reports usage at a given time.
    pub async fn use_at(&mut self, time: &str, model: &str, prompt: i64, completion: i64) {
        self.report_usage(time, 0, model, [prompt, completion]).await;
        self.write_line(&format!("{model} is used at {time}: {prompt} + {completion} tokens"));
    }

    /// Authorizes a call with this estimated number of tokens.
    pub async fn authorize_call(&mut self, model: &str, tokens: i64) {
        let question = json!({"credential": self.secret, "operation": "embeddings", "model": model,
            "estimated_prompt_tokens": tokens});
        let answer = self.world.ask("/service/v1/authorize", &question).bare().await;
        let answer = if answer["allowed"] == true {
            self.reservation = answer["reservation"]["id"].as_str().map(str::to_owned);
            format!("allowed, {} are set aside", answer["reservation"]["amount"])
        } else {
            answer["code"].as_str().unwrap_or("nothing").to_owned()
        };
        self.write_line(&format!("a call of {model} with {tokens} tokens: {answer}"));
    }

    /// Reports the usage of the last allowed call, which captures its reservation.
    pub async fn capture_call(&mut self, model: &str, tokens: i64) {
        let reservation = self.reservation.take().unwrap();
        let time = self.world.clock.now().to_string();
        let event = json!({"source": "tests", "time": time, "api_key_id": self.keys[0], "model": model,
            "kind": "embeddings", "prompt_tokens": tokens, "completion_tokens": 0, "reservation_id": reservation});
        self.report(event).await;
        self.write_line(&format!("the call of {model} has used {tokens} tokens"));
    }

    /// Corrects an event by subtracting these tokens.
    pub async fn correct_event(&mut self, number: usize, prompt: i64, completion: i64) {
        let mut event = self.events[number - 1].clone();
        event["corrects"] = event["id"].clone();
        event["time"] = json!(self.world.clock.now().to_string());
        event["prompt_tokens"] = json!(-prompt);
        event["completion_tokens"] = json!(-completion);
        self.report(event).await;
        self.write_line(&format!("event {number} is corrected: {prompt} + {completion} tokens fewer"));
    }

    /// Reports usage with the current time, including the cached tokens of the prompt.
    pub async fn use_cached(&mut self, model: &str, prompt: i64, cached: i64, completion: i64) {
        let time = self.world.clock.now().to_string();
        self.use_cached_at(&time, model, prompt, cached, completion).await;
    }

    /// Reports usage at a given time, including the cached tokens of the prompt.
    pub async fn use_cached_at(
        &mut self,
        time: &str,
        model: &str,
        prompt: i64,
        cached: i64,
        completion: i64,
    ) {
        let event = json!({"source": "tests", "time": time, "api_key_id": self.keys[0], "model": model,
            "kind": "chat", "prompt_tokens": prompt, "cached_prompt_tokens": cached,
            "completion_tokens": completion});
        self.report(event).await;
        self.write_line(&format!(
            "{model} is used at {time}: {prompt} ({cached} cached) + {completion} tokens"
        ));
    }

    /// Corrects an event by subtracting these tokens, including cached tokens of the prompt.
    pub async fn correct_cached(&mut self, number: usize, prompt: i64, cached: i64, completion: i64) {
        let mut event = self.events[number - 1].clone();
        event["corrects"] = event["id"].clone();
        event["time"] = json!(self.world.clock.now().to_string());
        event["prompt_tokens"] = json!(-prompt);
        event["cached_prompt_tokens"] = json!(-cached);
        event["completion_tokens"] = json!(-completion);
        self.report(event).await;
        self.write_line(&format!(
            "event {number} is corrected: {prompt} ({cached} cached) + {completion} tokens fewer"
        ));
    }

    /// Reports usage with the current time: the prompt tokens, the cached tokens among them, the completion
    /// tokens, and parts.
    pub async fn use_parts(&mut self, model: &str, tokens: [i64; 3], parts: &Value) {
        let time = self.world.clock.now().to_string();
        self.use_parts_at(&time, model, tokens, parts).await;
    }

    /// Like [`Self::use_parts`], at a given time.
    pub async fn use_parts_at(&mut self, time: &str, model: &str, tokens: [i64; 3], parts: &Value) {
        let [prompt, cached, completion] = tokens;
        let event = json!({"source": "tests", "time": time, "api_key_id": self.keys[0], "model": model,
            "kind": "chat", "prompt_tokens": prompt, "cached_prompt_tokens": cached,
            "completion_tokens": completion, "parts": parts});
        self.report(event).await;
        self.write_line(&format!(
            "{model} is used at {time}: {prompt} ({cached} cached) + {completion} tokens with {parts}"
        ));
    }

    /// Corrects an event by subtracting these tokens and adding these parts, which are negative.
    pub async fn correct_parts(&mut self, number: usize, tokens: [i64; 3], parts: &Value) {
        let mut event = self.events[number - 1].clone();
        let [prompt, cached, completion] = tokens;
        event["corrects"] = event["id"].clone();
        event["time"] = json!(self.world.clock.now().to_string());
        event["prompt_tokens"] = json!(-prompt);
        event["cached_prompt_tokens"] = json!(-cached);
        event["completion_tokens"] = json!(-completion);
        event["parts"] = parts.clone();
        self.report(event).await;
        self.write_line(&format!(
            "event {number} is corrected: {prompt} ({cached} cached) + {completion} tokens fewer, {parts}"
        ));
    }

    /// Returns the tokens of an event that can still be corrected. Returns `None` for corrections and for
    /// fully corrected events.
    pub fn correctable_tokens(&self, number: usize) -> Option<[i64; 2]> {
        let event = &self.events[number - 1];
        let of =
            |event: &Value| ["prompt_tokens", "completion_tokens"].map(|name| event[name].as_i64().unwrap());
        let corrections = self.events.iter().filter(|other| other["corrects"] == event["id"]).map(of);
        let left = corrections.fold(of(event), |left, taken| [left[0] + taken[0], left[1] + taken[1]]);
        (event["corrects"].is_null() && left != [0, 0]).then_some(left)
    }

    /// Returns the quantity of a part of an event, after all corrections.
    pub fn left_of_part(&self, number: usize, part: &str) -> i64 {
        let event = &self.events[number - 1];
        let corrections = self.events.iter().filter(|other| other["corrects"] == event["id"]);
        let each = corrections.chain([event]).map(|event| event["parts"][part].as_i64().unwrap_or_default());
        each.sum()
    }

    /// Returns the number of events.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    async fn report_usage(&mut self, time: &str, key: usize, model: &str, tokens: [i64; 2]) {
        let kind = if model.starts_with("embed") { "embeddings" } else { "chat" };
        let event = json!({"source": "tests", "time": time, "api_key_id": self.keys[key], "model": model,
            "kind": kind, "prompt_tokens": tokens[0], "completion_tokens": tokens[1]});
        self.report(event).await;
    }

    async fn report(&mut self, mut event: Value) {
        event["id"] = json!(format!("e{}", self.events.len() + 1));
        let answer = self.world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await;
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
        self.events.push(event);
    }

    pub fn new_credit(&self, amount: &str, reference: &str) -> NewCredit {
        NewCredit {
            organization_id: self.organization_id(),
            amount: Nano::parse(amount).unwrap(),
            reference: reference.to_owned(),
            is_grant: false,
            expires_at: None,
        }
    }

    pub async fn add(&self, new: &NewCredit) -> Result<AddedCredit, OperatorError> {
        credits::add(&self.world.app.billing, new, &Trail::operator()).await
    }

    pub async fn buy_credit(&mut self, amount: &str, reference: &str) {
        self.add(&self.new_credit(amount, reference)).await.unwrap();
        self.write_line(&format!("{amount} are bought as `{reference}`"));
    }

    pub async fn grant_credit(&mut self, amount: &str, reference: &str, until: &str) {
        let expires_at = Time::parse(until);
        let new = NewCredit { is_grant: true, expires_at, ..self.new_credit(amount, reference) };
        self.add(&new).await.unwrap();
        self.write_line(&format!("{amount} are given as `{reference}` until {until}"));
    }

    /// Runs the scheduled jobs once.
    pub async fn run_scheduler(&mut self) {
        let (app, trail) = (&self.world.app, Trail::system());
        let ended = credits::expire_due(&app.billing, &trail).await.unwrap();
        let outcome = closing::close_due(&app.billing, app.clock.now(), &trail, None).await.unwrap();
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        if ended > 0 {
            self.write_line(&format!("credits end: {ended}"));
        }
        for closed in outcome.closed {
            let invoice = closed.invoice.map_or("nothing was billed".to_owned(), |invoice| {
                format!("invoice {} over {}, {} due", invoice.number, invoice.amount, invoice.due)
            });
            self.write_line(&format!("{} is closed: {invoice}", closed.month));
        }
    }

    /// Returns all invoices, oldest first.
    pub async fn invoices(&self) -> Vec<Invoice> {
        let mut tx = self.world.app.db.read().await.unwrap();
        let page = tollkeeper::db::Page { page: 1, page_size: 100 };
        let mut all = tollkeeper::billing::store::invoices::list(&mut tx, self.organization_id(), None, page)
            .await
            .unwrap();
        all.reverse();
        all
    }

    async fn id_of(&self, number: i64) -> InvoiceId {
        self.invoices().await.iter().find(|invoice| invoice.number == number).unwrap().id
    }

    pub async fn pay_invoice(&mut self, number: i64) {
        let settled = invoice_changes::mark_paid(
            &self.world.app.billing,
            self.id_of(number).await,
            None,
            &Trail::operator(),
        )
        .await;
        let again = if settled.unwrap().was_unchanged { "was paid already" } else { "is paid from outside" };
        self.write_line(&format!("invoice {number} {again}"));
    }

    pub async fn void_invoice(&mut self, number: i64) {
        let settled =
            invoice_changes::void(&self.world.app.billing, self.id_of(number).await, &Trail::operator())
                .await;
        let again = if settled.unwrap().was_unchanged { "was void already" } else { "is taken back" };
        self.write_line(&format!("invoice {number} {again}"));
    }

    pub async fn give_up_invoice(&mut self, number: i64) {
        let id = self.id_of(number).await;
        invoice_changes::give_up(&self.world.app.billing, id, &Trail::operator()).await.unwrap();
        self.write_line(&format!("invoice {number} is given up"));
    }

    /// Writes the balance, the credits and the open invoices.
    pub async fn write_balance(&mut self) {
        billed::check(self.world, &self.place.organization).await;
        let mut tx = self.world.app.db.read().await.unwrap();
        let id = self.organization_id();
        let wallet = tollkeeper::billing::store::wallets::get(&mut tx, id).await.unwrap().unwrap();
        let mut credits = tollkeeper::billing::store::credits::list_remaining(&mut tx, id).await.unwrap();
        credits.sort_by(tollkeeper::billing::rules::books::cmp_use_order);
        let credits: Vec<_> = credits
            .iter()
            .map(|c| {
                // The reference of a correction ends with a hash.
                let reference = if c.source == Source::Correction { "correction" } else { &c.reference };
                format!("{} `{reference}` {} of {}", c.source.as_str(), c.remaining, c.amount)
            })
            .collect();
        let credits = if credits.is_empty() { "none".to_owned() } else { credits.join("; ") };
        let open = tollkeeper::billing::store::invoices::open(&mut tx, id).await.unwrap();
        let due = open.iter().map(|invoice| format!("; {} due of invoice {}", invoice.due, invoice.number));
        let mut line = format!(
            "= wallet {}, open month {}, credits: {credits}{}",
            wallet.posted,
            wallet.open_month,
            due.collect::<String>()
        );
        for invoice in self.invoices().await {
            line = line.replace(&invoice.id.to_string(), &format!("invoice {}", invoice.number));
        }
        self.write_line(&line);
    }

    /// Writes every invoice with its lines, and returns the whole transcript.
    pub async fn finish(&mut self) -> String {
        self.write_balance().await;
        let invoices = self.invoices().await;
        let mut tx = self.world.app.db.read().await.unwrap();
        let items = tollkeeper::billing::store::invoices::items(&mut tx, self.organization_id(), &invoices)
            .await
            .unwrap();
        for (invoice, items) in invoices.iter().zip(items) {
            let Invoice { number, month, amount, currency, due, .. } = invoice;
            let day = |time: Option<Time>| time.map(|time| time.day().to_string()).unwrap_or_default();
            let when = match invoice.status.as_str() {
                "paid" => format!(" on {}", day(invoice.paid_at)),
                "void" => format!(" since {}", day(invoice.voided_at)),
                _ => String::new(),
            };
            let status = invoice.status.as_str();
            writeln!(
                self.story,
                "\nInvoice {number} for {month}: {amount} {currency}, {due} due, {status}{when}"
            )
            .unwrap();
            for item in items {
                let (kind, text, price) = (item.kind.as_str(), &item.description, item.unit_price);
                writeln!(self.story, "  {kind:10} {text}: {} x {price} = {}", item.quantity, item.amount)
                    .unwrap();
            }
            let notes = tollkeeper::billing::store::credit_notes::between(
                &mut tx,
                invoice.organization_id,
                *month,
                *month,
            )
            .await;
            for (note, items) in notes.unwrap() {
                let (number, reference, amount) = (note.number, &note.reference, note.amount);
                writeln!(self.story, "  Credit note {number} for {reference}: {amount} {currency}").unwrap();
                for item in items {
                    let (kind, text, price) = (item.kind.as_str(), &item.description, item.unit_price);
                    writeln!(
                        self.story,
                        "    {kind:10} {text}: {} x {price} = {}",
                        item.quantity, item.amount
                    )
                    .unwrap();
                }
            }
        }
        std::mem::take(&mut self.story)
    }
}

/// Adds a catalog from before all others, because the clock is set back to a time before the first catalog of
/// this database. The audit recomputes amounts from the time of the first catalog on.
async fn backdate_first_catalog(world: &World) {
    let mut tx = world.app.db.write().await.unwrap();
    let first =
        "INSERT INTO catalogs (number, fingerprint, currency, in_force_at) VALUES (-1, 'tests', 'USD', 0)";
    tollkeeper::db::sql(first).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

fn set_clock(world: &World, time: &str) {
    let to = Time::parse(time).unwrap_or_else(|| panic!("{time}"));
    world.clock.advance_ms(to.unix_ms() - world.clock.now().unix_ms());
}
