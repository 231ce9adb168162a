//! Boundaries of days, months and prices: the last millisecond before and the first one after them. Also work
//! that must run only once.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::billing::{audit, bookkeeping as jobs};
use tollkeeper::metrics::Job;
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use support::billed::{check, fresh_token};
use support::books::{assert_books, number, wallet};
use support::http::Call;
use support::transcript::with_books;
use support::world::{Place, World};
use support::{Database, on_each_database};

/// An organization with a project and a key.
pub struct Scene {
    pub owner: String,
    pub place: Place,
    pub key_id: String,
    pub key: String,
}

pub async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, key) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
    Scene { owner: ada.access_token, place, key_id, key }
}

impl Scene {
    pub fn event(&self, id: &str, time: &str, more: &[(&str, Value)]) -> Value {
        let mut event = json!({"id": id, "source": "s", "time": time, "api_key_id": self.key_id, "model": "svc-1",
            "kind": "chat", "prompt_tokens": 1, "completion_tokens": 0});
        for (field, value) in more {
            event[*field] = value.clone();
        }
        event
    }

    /// Reports an event. Returns `accepted`, `duplicate` or the code of a refusal.
    pub async fn report(&self, service: &Server<'_>, event: &Value) -> String {
        let answer = service.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await;
        let result = &answer["results"][0];
        result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned()
    }
}

/// A server to call: the world's own, or another server with the same database.
pub struct Server<'a> {
    app: &'a App,
    service: &'a Dispatcher,
}

impl<'a> Server<'a> {
    pub fn of(world: &'a World) -> Self {
        Self { app: &world.app, service: &world.service }
    }

    fn ask(&self, path: &str, body: &Value) -> Call {
        Call::new(self.service, Method::POST, path).bearer(self.app.api.service_token.expose()).json(body)
    }
}

#[on_each_database]
async fn days_and_months_end_by_utc_in_every_time_zone(world: World) {
    let scene = scene(&world).await;
    let times = [
        ("2026-02-28T23:59:59.999Z", "2026-02-28"),
        ("2026-03-01T00:59:59.999+01:00", "2026-02-28"),
        ("2026-02-28T14:00:00-09:59", "2026-02-28"),
        ("2026-03-01T13:59:59+14:00", "2026-02-28"),
        ("2026-03-01T00:00:00Z", "2026-03-01"),
        ("2026-03-01T01:00:00+01:00", "2026-03-01"),
        ("2026-02-28T19:00:00-05:00", "2026-03-01"),
        ("2026-03-01T05:30:00+05:30", "2026-03-01"),
        ("2026-03-02T00:30:00+00:31", "2026-03-01"),
    ];
    for (number, (time, _)) in times.iter().enumerate() {
        let event = scene.event(&format!("e{number}"), time, &[]);
        assert_eq!(scene.report(&Server::of(&world), &event).await, "accepted", "{time}");
    }
    for (start, end, group, expected) in [
        ("2026-02-01", "2026-04-01", "day", json!([["2026-02-28", 4], ["2026-03-01", 5]])),
        ("2026-02-01", "2026-04-01", "month", json!([["2026-02-01", 4], ["2026-03-01", 5]])),
        ("2026-02-01", "2026-04-01", "week", json!([["2026-02-23", 9]])),
        ("2026-03-01T01:00:00%2B01:00", "2026-03-02", "day", json!([["2026-03-01", 5]])),
        // A time within a day includes that day.
        ("2026-03-01T00:59:59%2B01:00", "2026-03-01T00:00:00Z", "day", json!([["2026-02-28", 4]])),
    ] {
        let path = format!(
            "{}/billing/usage?start_date={start}&end_date={end}&group_by={group}",
            scene.place.organization_path()
        );
        let data = world.get(&path).bearer(&scene.owner).data().await;
        let rows = data["usage"].as_array().unwrap().iter();
        let rows: Vec<_> = rows.map(|row| json!([row["date"], row["chat"]["requests"]])).collect();
        assert_eq!(json!(rows), expected, "{path}");
    }
    assert_books(&world).await;
}

#[on_each_database]
async fn same_instant_in_another_notation_is_the_same_event(world: World) {
    let scene = scene(&world).await;
    let send = async |time: &str| scene.report(&Server::of(&world), &scene.event("e", time, &[])).await;
    assert_eq!(send("2026-03-09T10:00:00Z").await, "accepted");
    assert_eq!(send("2026-03-09T12:00:00.000+02:00").await, "duplicate");
    assert_eq!(send("2026-03-09T10:00:00.001Z").await, "event_conflict");
    assert_eq!(wallet(&world, &scene.place.organization).await, (-2_000, 0));
}

#[on_each_database]
async fn event_before_the_first_price_is_refused(world: World) {
    let scene = scene(&world).await;
    let path = world.data_dir.join("late.toml");
    let catalog = include_str!("../../../catalog/default.toml").replacen(
        "effective_at = \"2024-01-01T00:00:00Z\"",
        "effective_at = \"2026-03-09T10:00:00Z\"",
        1,
    );
    std::fs::write(&path, catalog).unwrap();
    let mut config = world.app.config.clone();
    config.catalog_file = Some(path);
    let app = App::new(config, world.clock.clone()).unwrap();
    app.boot().await.unwrap();
    let service = tollkeeper::api::routes::dispatcher(&app.api, Listener::Service);
    let there = Server { app: &app, service: &service };
    for (id, time, outcome) in [
        ("a", "2026-03-09T09:59:59.999Z", "model_without_price"),
        ("b", "2026-03-09T10:00:00.000Z", "accepted"),
        // The refused event wasn't counted, so its id can be used for another event.
        ("a", "2026-03-09T10:00:00.001Z", "accepted"),
    ] {
        assert_eq!(scene.report(&there, &scene.event(id, time, &[])).await, outcome, "{time}");
    }
    assert_eq!(wallet(&world, &scene.place.organization).await, (-4_000, 0));
    assert_books(&world).await;
}

#[on_each_database]
fn scheduler_catches_up_after_three_months(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        books.grant_credit("5", "welcome", "2026-02-20T00:00:00Z").await;
        books.use_today("chat-a", 0, 500_000).await;
        // No job runs for three months, while usage continues.
        books.set_time("2026-02-15T09:00:00Z");
        books.use_today("chat-a", 0, 100_000).await;
        books.set_time("2026-03-15T09:00:00Z");
        books.use_today("chat-a", 0, 300_000).await;
        books.set_time("2026-04-30T09:00:00Z");
        books.use_today("chat-a", 0, 50_000).await;
        let app = &books.world.app;
        let (one, other) = (app.leases.lease(Job::Billing), app.leases.lease(Job::Billing));
        let (here, there) =
            tokio::join!(jobs::run_due(&app.billing, &one), jobs::run_due(&app.billing, &other));
        here.and(there).unwrap();
        // The credit paid 3 and 0.6, and its remaining 1.4 expired. 1.8 and 0.3 are due.
        let said: Vec<_> = books
            .invoices()
            .await
            .iter()
            .map(|invoice| format!("{} {} {} {}", invoice.number, invoice.month, invoice.amount, invoice.due))
            .collect();
        assert_eq!(said, ["1 2026-01 3 0", "2 2026-02 0.6 0", "3 2026-03 1.8 1.8"]);
        assert_eq!(wallet(books.world, &books.place.organization).await, (-2_100_000_000, 0));
        let again = closing::close_due(&app.billing, app.clock.now(), &Trail::system(), None).await.unwrap();
        assert!(again.closed.is_empty() && again.failed.is_empty());
        assert!(audit::check(&app.billing, None).await.unwrap().is_clean());
    });
}

#[on_each_database]
fn void_and_paid_invoices_have_ledger_entries(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.pay_invoice(1).await;
        books.void_invoice(1).await;
        let world = books.world;
        for (kind, account, nano) in [
            ("usage", "usage", 3_000_000_000_i64),
            ("payment", "payments", -3_000_000_000),
            ("void", "voided_invoices", -3_000_000_000),
        ] {
            let entry = |account: &str, nano: i64| {
                format!(
                    "SELECT COUNT(*) FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id
                     WHERE t.kind = '{kind}' AND e.account = '{account}' AND e.amount_nano = {nano}"
                )
            };
            assert_eq!(number(world, &entry(account, nano)).await, 1, "{kind}");
            assert_eq!(number(world, &entry("wallet", -nano)).await, 1, "{kind}");
        }
        // The invoice keeps its lines and its number.
        assert_eq!(number(world, "SELECT COUNT(*) FROM invoice_items").await, 1);
        books.use_today("chat-a", 0, 100_000).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        let numbers: Vec<_> = books.invoices().await.iter().map(|invoice| invoice.number).collect();
        assert_eq!(numbers, [1, 2]);
        check(world, &books.place.organization).await;
    });
}

#[on_each_database]
fn organization_keeps_its_currency(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-a", 0, 500_000).await;
        let mut config = books.world.app.config.clone();
        config.billing.currency = "JPY".to_owned();
        books.set_time("2026-02-02T00:00:00Z");
        let app = App::new(config, books.world.clock.clone()).unwrap();
        app.boot().await.unwrap();
        closing::close_due(&app.billing, app.clock.now(), &Trail::system(), None).await.unwrap();
        assert_eq!(books.invoices().await[0].currency, "USD");
        let public = tollkeeper::api::routes::dispatcher(&app.api, Listener::Public);
        let token = fresh_token(books.world, &books.ada).await;
        let path = format!("{}/billing/summary", books.place.organization_path());
        let summary = Call::new(&public, Method::GET, &path).bearer(&token).data().await;
        assert_eq!(
            (&summary["balance"]["currency"], &summary["current_period"]["currency"]),
            (&json!("USD"), &json!("USD"))
        );
        let cents = books.new_credit("0.5", "payment 1");
        jobs::credits::add(&app.billing, &cents, &Trail::operator()).await.unwrap();
        // A new organization gets the new currency.
        let new = Call::new(&public, Method::POST, "/v1/organizations")
            .bearer(&token)
            .json(&json!({"name": "Neu"}));
        let new = new.data().await["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/organizations/{new}/billing/summary");
        let summary = Call::new(&public, Method::GET, &path).bearer(&token).data().await;
        assert_eq!(summary["balance"]["currency"], "JPY");
    });
}
