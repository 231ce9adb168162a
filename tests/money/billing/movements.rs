//! The credits of a balance and its movements over HTTP, as JSON and as CSV, and the limits of an
//! organization.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::{credits, invoice_changes};
use tollkeeper::billing::store::ledger::wallet_sum;
use tollkeeper::billing::wallets;
use tollkeeper::clock::Day;
use tollkeeper::db::sql;
use tollkeeper::ids::CreditId;
use tollkeeper::money::Nano;
use tollkeeper::tenants::roles::OrganizationRole;
use tollkeeper::trail::Trail;

use support::billed::fresh_token;
use support::http::Answer;
use support::transcript::{Books, with_books};
use support::world::World;
use support::{Database, on_each_database};

/// The time at which the tests begin. The prices of `chat-a` since January 10: a prompt token costs
/// 0.0000025, and a completion token 0.000006. Tokens above a million per month cost 5% less.
const START: &str = "2026-01-11T00:00:00Z";

/// A movement. Its amount is text, because a float wouldn't be exact.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Movement {
    time: String,
    kind: String,
    amount: String,
    reference: String,
    id: String,
}

impl Movement {
    fn nano(&self) -> i128 {
        Nano::parse(&self.amount).unwrap().units()
    }
}

async fn ask(books: &Books<'_>, path: &str, accept: &str) -> Answer {
    let token = fresh_token(books.world, &books.ada).await;
    let path = format!("{}{path}", books.place.organization_path());
    books.world.get(&path).bearer(&token).header("accept", accept).send().await
}

async fn data(books: &Books<'_>, path: &str) -> Value {
    let answer = ask(books, path, "*/*").await;
    assert_eq!(
        (answer.status, answer.header("cache-control")),
        (200, "private, no-store"),
        "{}",
        answer.text
    );
    answer.json()["data"].take()
}

/// Returns a page of movements, and their total number.
async fn page(books: &Books<'_>, query: &str) -> (Vec<Movement>, i64) {
    let answer = ask(books, &format!("/billing/movements{query}"), "application/json").await;
    assert_eq!((answer.status, answer.header("vary")), (200, "accept"), "{}", answer.text);
    let envelope: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&answer.text).unwrap();
    let data: BTreeMap<String, Box<RawValue>> = serde_json::from_str(envelope["data"].get()).unwrap();
    let rows: Vec<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(data["movements"].get()).unwrap();
    let movement = |row: BTreeMap<String, Box<RawValue>>| {
        assert_eq!(row["currency"].get(), "\"USD\"");
        let text = |name: &str| -> Option<String> { serde_json::from_str(row[name].get()).unwrap() };
        let [time, kind, id] = ["time", "kind", "id"].map(|name| text(name).unwrap());
        let reference = text("reference").unwrap_or_default();
        Movement { time, kind, amount: row["amount"].get().to_owned(), reference, id }
    };
    (rows.into_iter().map(movement).collect(), data["total"].get().parse().unwrap())
}

/// Returns the movements in the CSV file. Its cells have no quotes.
async fn file(books: &Books<'_>, query: &str) -> Vec<Movement> {
    let answer = ask(books, &format!("/billing/movements{query}"), "text/csv").await;
    let name = format!("attachment; filename=\"movements_{}.csv\"", books.place.organization);
    let due = ("text/csv; charset=utf-8", name.as_str(), "accept");
    let headers = ["content-type", "content-disposition", "vary"].map(|name| answer.header(name));
    assert_eq!((answer.status, headers[0], headers[1], headers[2]), (200, due.0, due.1, due.2));
    let mut lines: Vec<_> = answer.text.split("\r\n").collect();
    assert_eq!(lines.pop(), Some(""), "each line ends in CRLF");
    assert_eq!(lines.remove(0), "id,time,kind,amount,currency,reference");
    let movement = |line: &str| {
        let cells: Vec<_> = line.split(',').map(str::to_owned).collect();
        let [id, time, kind, amount, currency, reference] = cells.try_into().unwrap();
        assert_eq!(currency, "USD");
        Movement { time, kind, amount, reference, id }
    };
    lines.into_iter().map(movement).collect()
}

/// Returns the ids of the credits, by reference.
async fn credit_ids(books: &Books<'_>) -> BTreeMap<String, String> {
    let listed = data(books, "/billing/credits?page_size=100").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = listed["credits"].as_array().unwrap().iter();
    rows.map(|row| (text(&row["reference"]), text(&row["id"]))).collect()
}

#[on_each_database]
fn every_change_of_the_balance_is_a_movement(database: Database) {
    with_books(database, START, async |books| {
        let (app, trail) = (books.world.app.clone(), Trail::operator());
        // A credit limit isn't a movement.
        assert_eq!(page(books, "").await, (Vec::new(), 0));
        books.buy_credit("10", "payment 1").await;
        books.set_time("2026-01-12T00:00:00Z");
        books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
        // 1,200,000 x 0.0000025 = 3. The grant pays all of it, because it expires first.
        books.set_time("2026-01-13T00:00:00Z");
        books.use_today("chat-a", 1_200_000, 0).await;
        // 5 - 3 = 2 expire.
        books.set_time("2026-01-20T00:00:00Z");
        books.run_scheduler().await;
        // 1,800,000 x 0.0000025 = 4.5
        books.set_time("2026-01-21T00:00:00Z");
        books.use_today("chat-a", 1_800_000, 0).await;
        // (3,000,000 - 1,000,000) x 0.0000025 x 5% = 0.25
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // 500,000 x 0.0000025 = 1.25, less their discount: 1.25 x 5% = 0.0625
        books.set_time("2026-02-03T00:00:00Z");
        books.correct_event(2, 500_000, 0).await;
        books.set_time("2026-02-04T00:00:00Z");
        let ids = credit_ids(books).await;
        let bought = CreditId::parse(&ids["payment 1"]).unwrap();
        let one = Some(Nano::parse("1").unwrap());
        credits::take_back(&app.billing, bought, one, &trail).await.unwrap();
        // 2,000,000 x 0.000006 = 12
        books.set_time("2026-02-05T00:00:00Z");
        books.use_today("chat-a", 0, 2_000_000).await;
        // (2,000,000 - 1,000,000) x 0.000006 x 5% = 0.3
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        // 10 + 5 - 3 - 2 - 4.5 + 0.25 + 1.25 - 0.0625 - 1 - 12 + 0.3 = -5.7625 is owed. The payment is
        // rounded up to cents.
        books.set_time("2026-03-03T00:00:00Z");
        books.pay_invoice(2).await;
        // The invoice amount was 12 - 0.3 = 11.7
        books.set_time("2026-03-04T00:00:00Z");
        books.void_invoice(2).await;
        // 3,000,000 x 0.000006 = 18
        books.set_time("2026-03-05T00:00:00Z");
        books.use_today("chat-a", 0, 3_000_000).await;
        // (3,000,000 - 1,000,000) x 0.000006 x 5% = 0.6
        books.set_time("2026-04-02T00:00:00Z");
        books.run_scheduler().await;
        // -5.7625 + 5.77 + 11.7 - 18 + 0.6 = -5.6925
        books.set_time("2026-04-03T00:00:00Z");
        let invoices = books.invoices().await;
        invoice_changes::give_up(&app.billing, invoices[2].id, &trail).await.unwrap();
        books.set_time("2026-04-04T00:00:00Z");
        books.buy_credit("2.5", "payment 2").await;

        let due = [
            "01-11 credit 10 payment 1",
            "01-12 credit 5 welcome",
            "01-13 usage -3 ",
            "01-20 credit_expiry -2 CREDIT welcome",
            "01-21 usage -4.5 ",
            "02-02 discount 0.25 2026-01",
            "02-03 discount -0.0625 ",
            "02-03 usage 1.25 ",
            "02-04 credit -1 CREDIT payment 1",
            "02-05 usage -12 ",
            "03-02 discount 0.3 2026-02",
            "03-03 payment 5.77 INVOICE 2",
            "03-04 void 11.7 INVOICE 2",
            "03-05 usage -18 ",
            "04-02 discount 0.6 2026-03",
            "04-03 write_off 5.6925 INVOICE 3",
            "04-04 credit 2.5 payment 2",
        ];
        let (listed, total) = page(books, "?page_size=100").await;
        let mut said: Vec<String> = listed
            .iter()
            .map(|Movement { time, kind, amount, reference, .. }| {
                let mut reference = reference.clone();
                for invoice in &invoices {
                    reference =
                        reference.replace(&invoice.id.to_string(), &format!("INVOICE {}", invoice.number));
                }
                for (name, id) in &ids {
                    reference = reference.replace(id, &format!("CREDIT {name}"));
                }
                format!("{} {kind} {amount} {reference}", &time[5..10])
            })
            .collect();
        // The two movements of the credit note have the same time.
        said.sort();
        assert_eq!(said, due);
        assert_eq!(usize::try_from(total).unwrap(), due.len());
        assert!(listed.is_sorted_by(|a, b| a.time >= b.time), "the newest first");

        // The sum of the movements is the posted balance. Here it also equals the remaining credits.
        let sum: i128 = listed.iter().map(Movement::nano).sum();
        let mut tx = app.db.read().await.unwrap();
        assert_eq!(sum, wallet_sum(&mut tx, books.organization_id()).await.unwrap().amount.units());
        assert_eq!(sum, 2_500_000_000);
        assert_eq!(data(books, "/billing/summary").await["balance"]["available"], 2.5);
        assert_eq!(file(books, "").await, listed);
    });
}

#[on_each_database]
fn movements_of_a_range_are_listed_page_by_page(database: Database) {
    with_books(database, START, async |books| {
        for day in 11..=18 {
            books.set_time(&format!("2026-01-{day}T00:00:00Z"));
            books.buy_credit("1", &format!("payment {day}")).await;
        }
        let days = |movements: &[Movement]| -> String {
            let days = movements.iter().map(|movement| movement.reference.rsplit(' ').next().unwrap());
            days.collect::<Vec<_>>().join(" ")
        };
        let cases = [
            ("", "18 17 16 15 14 13 12 11", 8),
            ("?page_size=3", "18 17 16", 8),
            ("?page_size=3&page=2", "15 14 13", 8),
            // Later pages are read from the end of the list.
            ("?page_size=3&page=3", "12 11", 8),
            ("?page_size=3&page=4", "", 8),
            ("?start_date=2026-01-16", "18 17 16", 3),
            ("?end_date=2026-01-13", "12 11", 2),
            ("?start_date=2026-01-13&end_date=2026-01-15", "14 13", 2),
            ("?start_date=2026-01-13T00:00:00.001Z&end_date=2026-01-15T00:00:00.001Z", "15 14", 2),
            ("?start_date=2026-01-13T02:00:00.000%2B02:00&end_date=2026-01-14", "13", 1),
            ("?start_date=2026-01-13&end_date=2026-01-13", "", 0),
            ("?start_date=2026-01-13&page_size=2&page=3", "14 13", 6),
        ];
        for (query, due, number) in cases {
            let (movements, total) = page(books, query).await;
            assert_eq!((days(&movements).as_str(), total), (due, number), "{query}");
        }
        // The file contains the whole range, regardless of the page.
        assert_eq!(days(&file(books, "?start_date=2026-01-16&page=2&page_size=1").await), "18 17 16");

        // The pages of a past range don't change while new movements are added.
        books.set_time("2026-01-19T00:00:00Z");
        let range = "?end_date=2026-01-18T00:00:00.001Z&page_size=3";
        let mut seen = Vec::new();
        for number in 1..=3 {
            seen.extend(page(books, &format!("{range}&page={number}")).await.0);
            books.buy_credit("1", &format!("between {number}")).await;
            books.use_today("chat-a", 1_000, 0).await;
        }
        assert_eq!(days(&seen), "18 17 16 15 14 13 12 11");

        let cases = [
            ("?start_date=2026-01-13&end_date=2026-01-12", &["end_date end_before_start"][..]),
            (
                "?page=0&page_size=101&start_date=January&end_date=2026-13-01",
                &[
                    "page out_of_range",
                    "page_size out_of_range",
                    "start_date invalid_date",
                    "end_date invalid_date",
                ],
            ),
        ];
        for (query, details) in cases {
            for accept in ["application/json", "text/csv"] {
                let refused = ask(books, &format!("/billing/movements{query}"), accept).await;
                assert_eq!(
                    (refused.status, refused.header("content-type")),
                    (400, "application/json"),
                    "{query}"
                );
                assert_eq!(refused.details(), details, "{query}");
            }
        }
    });
}

#[on_each_database]
fn reference_in_a_file_is_no_formula(database: Database) {
    with_books(database, START, async |books| {
        books.buy_credit("1", "=HYPERLINK(\"http://x\",\"y\")").await;
        let csv = ask(books, "/billing/movements", "text/csv").await.text;
        assert!(csv.ends_with(",credit,1,USD,\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"\r\n"), "{csv}");
        // In JSON the text is unchanged.
        assert_eq!(page(books, "").await.0[0].reference, "=HYPERLINK(\"http://x\",\"y\")");
        for accept in ["application/json, text/csv;q=0.9", "*/*", "text/csv;q=0", "text/html"] {
            let answer = ask(books, "/billing/movements", accept).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{accept}");
        }
    });
}

#[on_each_database]
fn credits_are_listed_with_what_is_left(database: Database) {
    with_books(database, START, async |books| {
        let empty = json!({"credits": [], "total": 0, "page": 1, "page_size": 20});
        assert_eq!(data(books, "/billing/credits").await, empty);
        books.buy_credit("10", "payment 1").await;
        books.set_time("2026-01-12T00:00:00Z");
        books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
        // 1,200,000 x 0.0000025 = 3
        books.use_today("chat-a", 1_200_000, 0).await;
        let listed = ask(books, "/billing/credits", "*/*").await.text;
        let welcome = "\"amount\":5,\"remaining\":2,\"currency\":\"USD\",\"reference\":\"welcome\",\"kind\":\"grant\",\
            \"created_at\":\"2026-01-12T00:00:00.000Z\",\"expires_at\":\"2026-01-20T00:00:00.000Z\"}";
        let bought = "\"amount\":10,\"remaining\":10,\"currency\":\"USD\",\"reference\":\"payment 1\",\"kind\":\"purchase\",\
            \"created_at\":\"2026-01-11T00:00:00.000Z\",\"expires_at\":null}";
        let place = |text: &str| listed.find(text).unwrap_or_else(|| panic!("{text}: {listed}"));
        assert!(place(welcome) < place(bought), "the newest first: {listed}");
        assert!(listed.ends_with("],\"total\":2,\"page\":1,\"page_size\":20}}"), "{listed}");

        let left = async |books: &Books<'_>, query: &str| -> Vec<String> {
            let data = data(books, &format!("/billing/credits{query}")).await;
            assert_eq!(data["total"], 2);
            let rows = data["credits"].as_array().unwrap().iter();
            rows.map(|row| format!("{} {}", row["reference"].as_str().unwrap(), row["remaining"])).collect()
        };
        // Until the scheduler expires the grant, the balance includes it.
        books.set_time("2026-01-20T00:00:00Z");
        assert_eq!(left(books, "").await, ["welcome 2", "payment 1 10"]);
        assert_eq!(data(books, "/billing/summary").await["balance"]["available"], 12);
        books.run_scheduler().await;
        assert_eq!(left(books, "?page_size=1").await, ["welcome 0"]);
        assert_eq!(left(books, "?page_size=1&page=2").await, ["payment 1 10"]);
        assert_eq!(left(books, "?page=2").await, [""; 0]);
        let refused = ask(books, "/billing/credits?page=0&page_size=x", "*/*").await;
        assert_eq!(
            (refused.status, refused.details()),
            (400, vec!["page out_of_range".to_owned(), "page_size wrong_type".into()])
        );
    });
}

#[on_each_database]
fn money_of_another_organization_is_not_listed(database: Database) {
    with_books(database, START, async |books| {
        books.buy_credit("10", "payment 1").await;
        let bob = books.world.user("bob").await;
        let other = books.world.organization(&bob, "Other").await;
        for (path, list) in [("billing/credits", "credits"), ("billing/movements", "movements")] {
            let own = books.world.get(&format!("/v1/organizations/{other}/{path}"));
            let own = own.bearer(&bob.access_token).data().await;
            assert_eq!((&own[list], &own["total"]), (&json!([]), &json!(0)));
            let path = format!("{}/{path}", books.place.organization_path());
            assert_eq!(books.world.get(&path).bearer(&bob.access_token).refused().await.0, 403);
        }
        let csv = books.world.get(&format!("/v1/organizations/{other}/billing/movements"));
        let csv = csv.bearer(&bob.access_token).header("accept", "text/csv").send().await;
        assert_eq!(csv.text, "id,time,kind,amount,currency,reference\r\n");
    });
}

#[on_each_database]
fn limits_are_told_to_every_member(database: Database) {
    with_books(database, START, async |books| {
        let member = books.world.user("cem").await;
        books.world.join_organization(&books.place, &member, OrganizationRole::Member).await;
        books.buy_credit("10", "payment 1").await;
        wallets::set_credit_limit(
            &books.world.app.billing,
            books.organization_id(),
            Nano::parse("7.5").unwrap(),
            &Trail::operator(),
        )
        .await
        .unwrap();
        // 5,000 x 0.0000000007 = 0.0000035
        books.authorize_call("embed-e", 5_000).await;
        let path = format!("{}/limits", books.place.organization_path());
        let answer = books.world.get(&path).bearer(&member.access_token).send().await;
        let due = "\"data\":{\"models\":[\
            {\"id\":\"chat-a\",\"max_requests_per_min\":60,\"max_concurrent_requests\":5,\"max_tokens\":4096},\
            {\"id\":\"embed-e\",\"max_requests_per_min\":300,\"max_concurrent_requests\":20,\"max_tokens\":8192},\
            {\"id\":\"free-f\",\"max_requests_per_min\":60,\"max_concurrent_requests\":5,\"max_tokens\":4096},\
            {\"id\":\"chat-idr\",\"max_requests_per_min\":60,\"max_concurrent_requests\":5,\"max_tokens\":4096}],\
            \"credit_limit\":7.5,\
            \"balance\":{\"available\":9.9999965,\"reserved\":0.0000035,\"currency\":\"USD\"}}}";
        assert!(answer.status == 200 && answer.text.ends_with(due), "{}", answer.text);
        assert_eq!(answer.header("cache-control"), "private, no-store");
        assert_eq!(
            books
                .world
                .get(&format!("{}/billing/movements", books.place.organization_path()))
                .bearer(&member.access_token)
                .refused()
                .await,
            (403, "insufficient_role".to_owned())
        );
    });
}

/// The number of movements: one more than the maximum of a file.
const MANY: i64 = 100_001;

#[on_each_database]
async fn file_has_a_bound(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let series = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})");
    // An id is a prefix and 26 digits.
    let id =
        format!("'ltx_' || substr('{}' || CAST(i AS TEXT), length(CAST(i AS TEXT)) + 1)", "0".repeat(26));
    let first = Day::parse("2026-03-01").unwrap().start().unix_ms();
    let mut tx = world.app.db.write().await.unwrap();
    for text in [
        format!("{series} INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
                     SELECT {id}, '{organization}', 'usage', 'usage:' || CAST(i AS TEXT), {first} + i * 1000 FROM n"),
        format!("{series} INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
                     SELECT {id}, 'wallet', '{organization}', -i FROM n"),
    ] {
        sql(text).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let path = format!("/v1/organizations/{organization}/billing/movements");
    let csv = async |query: &str| {
        let call = world.get(&format!("{path}{query}")).bearer(&ada.access_token);
        call.header("accept", "text/csv").send().await
    };
    let refused = csv("").await;
    assert_eq!((refused.status, refused.details()), (400, vec!["start_date too_many".to_owned()]));
    // Without the first movement, the file isn't too long.
    let whole = csv("?start_date=2026-03-01T00:00:02Z").await;
    assert_eq!((whole.status, whole.text.lines().count()), (200, 100_001));
    assert!(whole.text.ends_with(",2026-03-01T00:00:02.000Z,usage,-0.000000002,USD,2\r\n"));
    // Pages can go beyond the maximum of a file.
    let last = world.get(&format!("{path}?page=1001&page_size=100")).bearer(&ada.access_token).data().await;
    assert_eq!((&last["total"], last["movements"].as_array().unwrap().len()), (&json!(MANY), 1));
    assert_eq!(last["movements"][0]["time"], "2026-03-01T00:00:01.000Z");
}
