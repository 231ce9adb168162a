//! Prices and discounts never change retroactively: a month costs what its contract defines, regardless of
//! later changes to the catalog files.
//!
//! The contract: model `m` costs 0.000001 per prompt token, and half of that above 1,000,000 tokens per
//! month. So 5,000,000 tokens cost 1 + 4 / 2 = 3, and their list price is 5. Every sum below was calculated
//! by hand.

use serde_json::{Value, json};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::clock::{Clock, DAY_MS, Time};
use tollkeeper::db::{Db, sql};
use tollkeeper::ids::OrganizationId;
use tollkeeper::web::route::Listener;

use tollkeeper::trail::Trail;

use support::billed;
use support::http::{Answer, Call};
use support::process::Start;
use support::world::{Folder, Place, TestUser, World, runtime};
use support::{Database, on_each_database};

const PRICES: &str =
    "{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"0.000001\", completion_tokens = \"0.000003\" }";
const TIERS: &str = "[[volume_discounts]]\nthreshold = 1000000\ndiscount = \"0.5\"\n";

fn model(id: &str, prices: &str) -> String {
    format!(
        "[[models]]\nid = \"{id}\"\nkind = \"chat\"\ndescription = \"A model\"\nowned_by = \"acme\"\ncreated = 1\nmax_tokens = 100\n\
         max_requests_per_min = 1000\nmax_concurrent_requests = 100\nprices = [{prices}]\n"
    )
}

fn contract() -> String {
    model("m", PRICES) + TIERS
}

/// A customer and their first server.
struct Story<'w> {
    world: &'w World,
    ada: TestUser,
    place: Place,
    key: (String, String),
}

/// A server with its own catalog file and currency.
struct Server {
    app: App,
    service: Dispatcher,
    public: Dispatcher,
}

impl Server {
    fn of(app: &App) -> Self {
        let entrance = |listener| tollkeeper::api::routes::dispatcher(&app.api, listener);
        Self { app: app.clone(), service: entrance(Listener::Service), public: entrance(Listener::Public) }
    }

    async fn report(&self, events: &[Value]) -> Answer {
        let call = Call::new(&self.service, http::Method::POST, "/service/v1/usage");
        call.bearer(self.app.api.service_token.expose()).json(&json!({ "events": events })).send().await
    }

    /// Reports the events. Returns the result of each event, or the error of the whole batch.
    async fn outcomes(&self, events: &[Value]) -> Vec<String> {
        let answer = self.report(events).await;
        if answer.status != 200 {
            return vec![format!("{} {}", answer.status, answer.code())];
        }
        let results = answer.json()["results"].as_array().unwrap().clone();
        let word = |result: &Value| result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned();
        results.iter().map(word).collect()
    }

    /// Returns the failing checks of `/readyz`, with their messages.
    async fn not_ready(&self) -> Vec<(String, String)> {
        let answer = Call::new(&self.public, http::Method::GET, "/readyz").send().await;
        let details = answer.json()["error"]["details"].as_array().cloned().unwrap_or_default();
        let text = |detail: &Value, name: &str| detail[name].as_str().unwrap().to_owned();
        details.iter().map(|detail| (text(detail, "param"), text(detail, "message"))).collect()
    }
}

impl Story<'_> {
    fn set_time(&self, time: &str) {
        let to = Time::parse(time).unwrap();
        self.world.clock.advance_ms(to.unix_ms() - self.world.clock.now().unix_ms());
    }

    fn event(&self, id: &str, time: &str, model: &str, prompt: i64) -> Value {
        json!({"id": id, "source": "s", "time": time, "api_key_id": self.key.0, "model": model, "kind": "chat",
               "prompt_tokens": prompt, "completion_tokens": 0})
    }

    fn correction(&self, id: &str, time: &str, of: &str, prompt: i64) -> Value {
        let mut event = self.event(id, time, "m", -prompt);
        event["corrects"] = json!(of);
        event
    }

    /// Starts a server with another catalog. Returns the error if the server refuses to start.
    async fn restart(&self, text: &str, currency: &str) -> Result<Server, String> {
        let folder = Folder::new();
        let path = folder.0.join("catalog.toml");
        std::fs::write(&path, text).unwrap();
        let mut config = self.world.app.config.clone();
        config.catalog_file = Some(path);
        config.billing.currency = currency.to_owned();
        let app = App::new(config, self.world.clock.clone())?;
        app.boot_until_ready().await?;
        Ok(Server::of(&app))
    }

    /// Closes all due months on this server. Returns the customer's invoices with their lines, newest first.
    async fn close(&self, app: &App) -> Vec<(String, Vec<String>)> {
        let outcome =
            closing::close_due(&app.billing, self.world.clock.now(), &Trail::system(), None).await.unwrap();
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let id = OrganizationId::parse(&self.place.organization).unwrap();
        let mut tx = app.db.read().await.unwrap();
        let page = tollkeeper::db::Page { page: 1, page_size: 100 };
        let invoices = tollkeeper::billing::store::invoices::list(&mut tx, id, None, page).await.unwrap();
        let items = tollkeeper::billing::store::invoices::items(&mut tx, id, &invoices).await.unwrap();
        let line = |item: &tollkeeper::billing::rules::invoicing::Item| {
            format!("{} x {} = {}", item.quantity, item.unit_price, item.amount)
        };
        let pairs = invoices.iter().zip(items);
        pairs.map(|(invoice, items)| (invoice.amount.to_string(), items.iter().map(line).collect())).collect()
    }

    /// Returns the total of the current month.
    async fn total(&self, server: &Server) -> String {
        let path = format!("{}/billing/summary", self.place.organization_path());
        let token = billed::fresh_token(self.world, &self.ada).await;
        let call = Call::new(&server.public, http::Method::GET, &path).bearer(&token);
        call.data().await["current_period"]["total_amount"].to_string()
    }
}

/// Runs a test on each database. It begins on January 5 with the contract in force.
fn run_on(database: Database, test: impl AsyncFn(Story<'_>)) {
    let folder = Folder::new();
    let path = folder.0.join("catalog.toml");
    std::fs::write(&path, contract()).unwrap();
    let settings =
        [("TOLLKEEPER_CATALOG_FILE", path.to_str().unwrap()), ("TOLLKEEPER_LIMITS__ENABLED", "false")];
    database.run(&settings, async |world| {
        let start = Time::parse("2026-01-05T09:00:00Z").unwrap();
        world.clock.advance_ms(start.unix_ms() - world.clock.now().unix_ms());
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let key = world.key(&ada, &place, &json!({"name": "k"})).await;
        test(Story { world: &world, ada, place, key }).await;
    });
}

const JANUARY: &str = "2026-01-05T09:00:00Z";

fn invoice(amount: &str, lines: &[&str]) -> (String, Vec<String>) {
    (amount.to_owned(), lines.iter().map(|line| (*line).to_owned()).collect())
}

/// Returns the invoice for 5,000,000 tokens.
fn contract_invoice() -> (String, Vec<String>) {
    invoice("3", &["5000000 x 0.000001 = 5", "1 x -2 = -2"])
}

#[on_each_database]
fn changed_price_without_a_new_instant_is_refused(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        let corrected = contract().replace("\"0.000001\"", "\"0.0000011\"");
        let restarted = story.restart(&corrected, "USD").await;
        let closer = restarted.as_ref().map_or(&story.world.app, |server| &server.app);
        story.set_time("2026-02-02T00:05:00Z");
        assert_eq!(story.close(closer).await, [contract_invoice()]);
        let error = restarted.err().expect("the server refuses to start");
        let expected = "catalog.toml:10: model `m`: `prices`: the price from 2024-01-01T00:00:00.000Z on is in force with prompt 0.000001, \
                        completion 0.000003 and can't change: keep it, and add one with a different \
                        `effective_at`";
        assert!(error.ends_with(expected), "{error}");
        // With an `effective_at` of its own the price is valid: 1,000,000 tokens in February cost 1.1, and
        // the rest costs half.
        let added =
            contract().replace(PRICES, &format!("{PRICES}, {}", price("2026-02-02T00:06:00Z", "0.0000011")));
        let server = story.restart(&added, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        story.set_time("2026-02-02T00:06:00Z");
        let event = story.event("f", "2026-02-02T00:06:00Z", "m", 3_000_000);
        assert_eq!(server.outcomes(&[event]).await, ["accepted"]);
        assert_eq!(story.total(&server).await, "2.2");
    });
}

fn price(instant: &str, prompt: &str) -> String {
    format!("{{ effective_at = {instant}, prompt_tokens = \"{prompt}\", completion_tokens = \"0.000003\" }}")
}

/// Creates usage of 5,000,000 tokens two months ago, and keeps the server from closing that month.
async fn use_something(start: &Start, organization: &str) {
    let db = Db::open(&start.database_settings()).unwrap();
    let day = Clock::System.now().plus_ms(-62 * DAY_MS).day().month_start();
    let mut tx = db.write().await.unwrap();
    sql("INSERT INTO job_leases (job, holder, leased_until) VALUES ('billing', 'the test', $1)
         ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, leased_until = excluded.leased_until")
    .bind(i64::MAX)
    .execute(&mut tx)
    .await
    .unwrap();
    sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
             requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         VALUES ($1, 'proj_1', 'key_1', 'm', 1704067200000, 'chat', $2, $3, 1, 5000000, 0, 5000000000000, 5000000000)")
    .bind(organization)
    .bind(day)
    .bind(day.month())
    .execute(&mut tx)
    .await
    .unwrap();
    sql("UPDATE wallets SET open_month = $2, posted_nano = -5000000000 WHERE organization_id = $1")
        .bind(organization)
        .bind(day.month())
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
fn closing_command_needs_no_catalog_file(database: Database) {
    database.run_processes(|url, folder| {
        let file = folder.0.join("contract.toml");
        std::fs::write(&file, contract()).unwrap();
        let shell = Start::new(&folder.0).database(url);
        let server = shell.clone().set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap()).run();
        let place = server.settle(&server.sign_up("ada"));
        let organization = place.project_path.split('/').nth(3).unwrap();
        runtime().block_on(use_something(&shell, organization));
        let closed = shell.command(&["billing", "close", "--skip-wait", "--json"]);
        let first: Value = serde_json::from_str(closed.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(first["amount"].to_string(), "3", "{}", closed.log);
        // A missing or different file makes no difference.
        let nowhere = shell.clone().set("TOLLKEEPER_CATALOG_FILE", "/nowhere/catalog.toml");
        assert_eq!(nowhere.command(&["billing", "close", "--skip-wait"]).stdout.trim(), "No month was due.");
        let list = nowhere.command(&["invoice", "list", "--organization", organization]);
        assert!(list.stdout.contains("3 USD"), "{}{}", list.stdout, list.log);
        let shown = nowhere.command(&["catalog", "show"]);
        assert_eq!(
            (shown.code, shown.stdout.as_str()),
            (
                Some(0),
                "m\n  from 2024-01-01T00:00:00.000Z: prompt 0.000001, completion 0.000003 per token (in force)\n\
                 volume discounts\n  since ever: 0.5 above 1000000 (in force)\n"
            ),
            "{}",
            shown.log
        );
        assert_eq!(server.stop().code, Some(0));
    });
}

#[on_each_database]
fn changed_tiers_leave_earlier_months_alone(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        story.set_time("2026-02-01T00:10:00Z");
        // A changed list of discounts is refused, because the old list is in force.
        let rewritten = story.restart(&contract().replace("\"0.5\"", "\"0.1\""), "USD").await;
        let closer = rewritten.as_ref().map_or(&story.world.app, |server| &server.app);
        let event = story.event("f", "2026-02-01T00:10:00Z", "m", 5_000_000);
        assert_eq!(here.outcomes(&[event]).await, ["accepted"]);
        story.set_time("2026-02-02T00:05:00Z");
        assert_eq!(story.close(closer).await, [contract_invoice()]);
        let error = rewritten.err().expect("the server refuses to start");
        let line = "catalog.toml:11: volume discount: the discounts without `effective_at` are in force \
                    (0.5 above 1000000) and can't change: keep them, and add the new list with a different \
                    `effective_at`";
        assert!(error.ends_with(line), "{error}");
    });
}

#[on_each_database]
fn month_has_the_tiers_of_its_first_instant(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        story.set_time("2026-02-01T00:10:00Z");
        let since =
            |instant: &str, tier: &str| format!("[[volume_discounts]]\neffective_at = {instant}\n{tier}\n");
        // A discount of 10% applies from February, although it is loaded ten minutes late. A list that begins
        // in March applies from April.
        let text = contract()
            + &since("2026-02-01T00:00:00Z", "threshold = 1000000\ndiscount = \"0.1\"")
            + &since("2026-03-20T00:00:00Z", "threshold = 0\ndiscount = 0");
        let server = story.restart(&text, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        let mut expected = Vec::new();
        for (month, amount, lines) in [
            ("2026-02", "4.6", &["5000000 x 0.000001 = 5", "1 x -0.4 = -0.4"][..]),
            ("2026-03", "4.6", &["5000000 x 0.000001 = 5", "1 x -0.4 = -0.4"][..]),
            ("2026-04", "5", &["5000000 x 0.000001 = 5"][..]),
        ] {
            let time = format!("{month}-21T00:00:00Z");
            story.set_time(&time);
            let event = story.event(month, &time, "m", 5_000_000);
            assert_eq!(server.outcomes(&[event]).await, ["accepted"]);
            assert_eq!(story.total(&server).await, amount, "{month}");
            expected.insert(0, invoice(amount, lines));
        }
        story.set_time("2026-05-02T00:05:00Z");
        expected.push(contract_invoice());
        // This server has never read the new file.
        assert_eq!(story.close(&story.world.app).await, expected);
    });
}

#[on_each_database]
fn price_missing_from_the_file_stays_in_force(database: Database) {
    run_on(database, async |story| {
        // On January 10 the price doubles. The 5,000,000 tokens before it cost 1 + 4 / 2 = 3, and the
        // 3,000,000 after it 6 / 2 = 3.
        let second = price("2026-01-10T00:00:00Z", "0.000002");
        let both = contract().replace(PRICES, &format!("{PRICES}, {second}"));
        let before = story.restart(&both, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        let late = "2026-01-12T09:00:00Z";
        assert_eq!(before.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        story.set_time(late);
        assert_eq!(before.outcomes(&[story.event("f", late, "m", 4_000_000)]).await, ["accepted"]);
        let one = contract().replace(PRICES, &second);
        let after = story.restart(&one, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(after.outcomes(&[story.correction("c", late, "f", 1_000_000)]).await, ["accepted"]);
        assert_eq!(after.outcomes(&[story.correction("d", late, "e", 1)]).await, ["accepted"]);
        assert_eq!(after.outcomes(&[story.event("g", JANUARY, "m", 1)]).await, ["accepted"]);
        story.set_time("2026-02-02T00:05:00Z");
        let lines = ["5000000 x 0.000001 = 5", "3000000 x 0.000002 = 6", "1 x -5 = -5"];
        assert_eq!(story.close(&after.app).await, [invoice("6", &lines)]);
    });
}

#[on_each_database]
fn backdated_price_applies_to_later_reports_only(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        let two = format!("{PRICES}, {}", price("2026-01-03T00:00:00Z", "0.000002"));
        let there = story.restart(&contract().replace(PRICES, &two), "USD").await;
        let there = there.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(there.outcomes(&[story.event("f", JANUARY, "m", 1_000_000)]).await, ["accepted"]);
        // The first 5,000,000 tokens cost the same as before, and the 1,000,000 reported later cost half of
        // 2.
        assert_eq!(story.total(&there).await, "4");
        // A correction uses the price of its event: 1,000,000 fewer tokens at the first price cost half of 1
        // less.
        assert_eq!(there.outcomes(&[story.correction("c", JANUARY, "e", 1_000_000)]).await, ["accepted"]);
        story.set_time("2026-02-02T00:05:00Z");
        let lines = ["4000000 x 0.000001 = 4", "1000000 x 0.000002 = 2", "1 x -2.5 = -2.5"];
        assert_eq!(story.close(&here.app).await, [invoice("3.5", &lines)]);
    });
}

#[on_each_database]
fn upgrade_records_the_prices_of_the_file(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        // Earlier versions left usage without a recorded price.
        let mut tx = story.world.app.db.write().await.unwrap();
        let is_postgres = story.world.app.db.is_postgres();
        for table in ["price_versions", "discount_versions", "catalogs"] {
            let trigger = if is_postgres { "append_only" } else { "no_delete" };
            let on = if is_postgres { format!(" ON {table}") } else { String::new() };
            sql(format!("DROP TRIGGER {table}_{trigger}{on}")).execute(&mut tx).await.unwrap();
            sql(format!("DELETE FROM {table}")).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        story.set_time("2026-02-02T00:05:00Z");
        // A command that runs before the new version's server has started must not close a month at a wrong
        // price. It closes none.
        let now = story.world.clock.now();
        let outcome = closing::close_due(&here.app.billing, now, &Trail::system(), None).await.unwrap();
        let reason = &outcome.failed[0].reason;
        assert!(
            outcome.closed.is_empty() && reason.contains("the database has no prices yet"),
            "{outcome:?}"
        );
        let there = story.restart(&contract(), "USD").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(there.not_ready().await, []);
        assert_eq!(story.close(&there.app).await, [contract_invoice()]);
    });
}

#[on_each_database]
fn closed_month_accepts_no_new_prices(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        story.set_time("2026-02-02T00:05:00Z");
        assert_eq!(story.close(&story.world.app).await, [contract_invoice()]);
        let backdated =
            contract().replace(PRICES, &format!("{PRICES}, {}", price("2026-01-31T23:59:59Z", "0.000009")));
        let tiers =
            "[[volume_discounts]]\neffective_at = 2026-01-01T00:00:00Z\nthreshold = 1\ndiscount = 0\n";
        for (text, line) in [
            (
                backdated,
                "catalog.toml:10: model `m`: `prices`: months before 2026-02-01 are closed, so it can't \
                 apply from \
                         2026-01-31T23:59:59.000Z on: give it a later `effective_at`",
            ),
            (
                contract() + tiers,
                "catalog.toml:14: volume discount: months before 2026-02-01 are closed, so it can't apply \
                 from \
                                  2026-01-01T00:00:00.000Z on: give it a later `effective_at`",
            ),
        ] {
            let error = story.restart(&text, "USD").await.err().expect("the server refuses to start");
            assert!(error.ends_with(line), "{error}");
        }
        // No usage of the new model exists, so its first price may be in the past.
        let text = contract() + &model("new", PRICES);
        let there = story.restart(&text, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(there.outcomes(&[story.event("n", "2026-02-02T00:00:00Z", "new", 1)]).await, ["accepted"]);
    });
}

#[on_each_database]
fn replica_with_an_older_file_is_not_ready(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        let old = [story.event("e", JANUARY, "m", 5_000_000)];
        assert_eq!(here.outcomes(&old).await, ["accepted"]);
        let newer = contract() + &model("new", PRICES);
        let there = story.restart(&newer, "USD").await.unwrap_or_else(|error| panic!("{error}"));
        run_jobs(&here).await;
        let message = "This server's catalog isn't the one in force: update its file, or put its catalog in \
                       force again with `tollkeeper catalog reload`.";
        assert_eq!(here.not_ready().await, [("catalog".to_owned(), message.to_owned())]);
        assert_eq!(there.not_ready().await, []);
        // Another replica may have the price in its catalog, so nothing of the batch is written, and the same
        // batch is accepted there.
        let batch = [story.event("f", JANUARY, "new", 1), story.event("g", JANUARY, "m", 1)];
        assert_eq!(here.outcomes(&batch).await, ["503 not_ready"]);
        assert_eq!(there.outcomes(&batch).await, ["accepted", "accepted"]);
        assert_eq!(here.outcomes(&batch).await, ["duplicate", "duplicate"]);
        assert_eq!(story.total(&here).await, story.total(&there).await);
        // Restarting the server with the old file doesn't help.
        let again = story.restart(&contract(), "USD").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.not_ready().await.len(), 1);
        let file = story.world.app.config.catalog_file.as_ref().unwrap();
        std::fs::write(file, &newer).unwrap();
        run_jobs(&here).await;
        assert_eq!(here.not_ready().await, []);
        // A server that has read the current file may change it back.
        std::fs::write(file, contract()).unwrap();
        run_jobs(&here).await;
        assert_eq!(here.not_ready().await, []);
        run_jobs(&there).await;
        assert_eq!(there.not_ready().await.len(), 1);
    });
}

/// Runs the jobs that take over a change of the catalog.
async fn run_jobs(server: &Server) {
    server.app.feed.catch_up().await.unwrap();
    tollkeeper::catalog::activation::reload(&server.app.catalogs).await.unwrap();
}

#[on_each_database]
fn wallet_of_another_currency_is_left_alone(database: Database) {
    run_on(database, async |story| {
        let here = Server::of(&story.world.app);
        assert_eq!(here.outcomes(&[story.event("e", JANUARY, "m", 5_000_000)]).await, ["accepted"]);
        // A token costs 150 yen instead of 0.000001 dollars.
        let yen = contract().replace(PRICES, &format!("{PRICES}, {}", price("2026-01-05T00:00:00Z", "150")));
        let there = story.restart(&yen, "JPY").await.unwrap_or_else(|error| panic!("{error}"));
        let event = story.event("f", JANUARY, "m", 1);
        assert_eq!(there.outcomes(std::slice::from_ref(&event)).await, ["503 not_ready"]);
        let question =
            json!({"credential": story.key.1, "operation": "chat", "model": "m", "max_tokens": 10});
        let call = Call::new(&there.service, http::Method::POST, "/service/v1/authorize");
        let refused = call.bearer(there.app.api.service_token.expose()).json(&question).refused().await;
        assert_eq!(refused, (503, "not_ready".to_owned()));
        let message = "Some organizations have a currency other than JPY (1 in USD): set `billing.currency` back to it.";
        assert_eq!(there.not_ready().await, [("currency".to_owned(), message.to_owned())]);
        // No price of the other catalog is used.
        assert_eq!(story.total(&here).await, "3");
        assert_eq!(here.outcomes(&[event]).await, ["accepted"]);
        assert_eq!(story.total(&here).await, "3.0000005");
        let wrong = story.restart(&format!("currency = \"JPY\"\n{}", contract()), "USD").await.err();
        let line = "catalog.toml:1: `currency`: the prices are in JPY, and `billing.currency` is USD";
        assert!(wrong.as_ref().is_some_and(|error| error.contains(line)), "{wrong:?}");
    });
}
