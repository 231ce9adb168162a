//! Reading money over HTTP: the summary, invoices, and the printable page of an invoice.

use serde_json::{Value, json};
use tollkeeper::billing::store::{invoices, months};
use tollkeeper::db::{Error, FromRow, Row, sql};

use support::billed::fresh_token;
use support::http::Answer;
use support::transcript::{Books, with_books};
use support::world::id;
use support::{Database, on_each_database};

const JANUARY: &str = "2026-01-15T09:00:00Z";

async fn get(books: &Books<'_>, path: &str) -> Answer {
    let token = fresh_token(books.world, &books.ada).await;
    let path = format!("{}/billing{path}", books.place.organization_path());
    books.world.get(&path).bearer(&token).send().await
}

async fn data(books: &Books<'_>, path: &str) -> Value {
    let answer = get(books, path).await;
    assert_eq!(
        (answer.status, answer.header("cache-control")),
        (200, "private, no-store"),
        "{}",
        answer.text
    );
    answer.json()["data"].take()
}

#[on_each_database]
fn summary_shows_balance_and_month(database: Database) {
    with_books(database, JANUARY, async |books| {
        let empty = get(books, "/summary").await;
        let expected = "{\"current_period\":{\"start_date\":\"2026-01-01T00:00:00.000Z\",\"end_date\":\"2026-02-01T00:00:00.000Z\",\
            \"total_amount\":0,\"currency\":\"USD\",\"status\":\"active\"},\"balance\":{\"available\":0,\"reserved\":0,\
            \"currency\":\"USD\"},\"payment_method\":null,\"subscription\":{\"plan\":\"pay_as_you_go\",\"status\":\"active\",\
            \"next_billing_date\":\"2026-02-01T00:00:00.000Z\",\"end_date\":\"2026-02-01T00:00:00.000Z\"}}";
        assert!(empty.text.contains(expected), "{}", empty.text);
        books.buy_credit("10", "payment 1").await;
        // 3,000,000 x 0.0000025 = 7.5, less 5% of the 5 above the first million: 0.25. The embedding adds 0.7
        // nano.
        books.use_today("chat-a", 3_000_000, 0).await;
        books.use_today("embed-e", 1, 0).await;
        let running = get(books, "/summary").await.text;
        assert!(running.contains("\"total_amount\":7.2500000007,"), "{running}");
        // The discount isn't credited until the month closes.
        assert!(running.contains("\"available\":2.5,"), "{running}");

        // On the day of grace the summary already shows the new month.
        books.set_time("2026-02-01T00:00:00Z");
        books.use_today("chat-a", 1_000, 0).await;
        let period = data(books, "/summary").await["current_period"].take();
        let (start, amount) = (&period["start_date"], &period["total_amount"]);
        assert_eq!(
            (start, amount, &period["status"]),
            (&json!("2026-02-01T00:00:00.000Z"), &json!(0.0025), &json!("active"))
        );

        // Late usage is billed in the month that is open when it is reported.
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let january = tollkeeper::clock::Day::parse("2026-01-20").unwrap();
        books.use_on_day(january, 0, "chat-a", 1_000, 0).await;
        let summary = data(books, "/summary").await;
        // The late tokens get January's discount, because January's first million is used up: 1,000 x
        // 0.0000025 x 95% = 0.002375. February adds 0.0025.
        assert_eq!(summary["current_period"]["total_amount"], 0.004875);
        assert_eq!(summary["subscription"]["status"], "active");

        // An invoice of an earlier month is still due.
        books.use_today("chat-a", 0, 1_000_000).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        let summary = data(books, "/summary").await;
        assert_eq!(summary["subscription"]["status"], "past_due");
        assert_eq!(summary["subscription"]["next_billing_date"], "2026-04-01T00:00:00.000Z");
        books.buy_credit("100", "payment 2").await;
        assert_eq!(data(books, "/summary").await["subscription"]["status"], "active");
    });
}

#[on_each_database]
fn reserved_money_is_not_available(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.buy_credit("10", "payment 1").await;
        let mut tx = books.world.app.db.write().await.unwrap();
        tollkeeper::db::sql("UPDATE wallets SET reserved_nano = 2500000001").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let summary = get(books, "/summary").await.text;
        assert!(summary.contains("\"available\":7.499999999,\"reserved\":2.500000001,"), "{summary}");
    });
}

#[on_each_database]
fn invoice_amounts_are_exact(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.buy_credit("100", "payment 1").await;
        books.use_today("chat-a", 3_000_000, 7).await;
        books.use_today("embed-e", 1, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let list = get(books, "/invoices").await.text;
        let invoice = "\"number\":1,\"period_start\":\"2026-01-01T00:00:00.000Z\",\"period_end\":\"2026-02-01T00:00:00.000Z\",\
            \"amount\":7.250042,\"balance_brought_forward\":0,\"amount_due\":0,\"currency\":\"USD\",\"status\":\"paid\",\"payment_date\":\"2026-02-02T00:00:00.000Z\",\"items\":[\
            {\"description\":\"chat-a, prompt tokens\",\"quantity\":3000000,\"unit_price\":0.0000025,\"amount\":7.5},\
            {\"description\":\"chat-a, completion tokens\",\"quantity\":7,\"unit_price\":0.000006,\"amount\":0.000042},\
            {\"description\":\"embed-e, input tokens\",\"quantity\":1,\"unit_price\":0.0000000007,\"amount\":0.0000000007},\
            {\"description\":\"Volume discount: chat-a, prompt tokens\",\"quantity\":1,\"unit_price\":-0.25,\"amount\":-0.25},\
            {\"description\":\"Rounding\",\"quantity\":1,\"unit_price\":-0.0000000007,\"amount\":-0.0000000007}],\"credit_notes\":[]";
        let page = "}],\"total\":1,\"page\":1,\"page_size\":20}";
        assert!(list.contains(&format!("{invoice}{page}")), "{list}");
        let listed: Value = serde_json::from_str(&list).unwrap();
        let one = get(books, &format!("/invoices/{}", id(&listed["data"]["invoices"][0]))).await;
        assert!(
            one.text.contains(invoice) && one.header("content-type") == "application/json",
            "{}",
            one.text
        );
        assert_eq!((one.header("vary"), one.header("cache-control")), ("accept", "private, no-store"));
    });
}

#[on_each_database]
fn invoices_are_listed_newest_first_and_by_status(database: Database) {
    with_books(database, JANUARY, async |books| {
        for month in ["02", "03", "04"] {
            books.use_today("chat-a", 4_000, 0).await;
            books.set_time(&format!("2026-{month}-02T00:00:00Z"));
            books.run_scheduler().await;
        }
        books.pay_invoice(2).await;
        let numbers = async |books: &Books<'_>, query: &str| {
            let data = data(books, &format!("/invoices{query}")).await;
            let numbers: Vec<_> =
                data["invoices"].as_array().unwrap().iter().map(|i| i["number"].as_i64().unwrap()).collect();
            (numbers, data["total"].as_i64().unwrap())
        };
        assert_eq!(numbers(books, "").await, (vec![3, 2, 1], 3));
        assert_eq!(numbers(books, "?page_size=2").await, (vec![3, 2], 3));
        assert_eq!(numbers(books, "?page_size=2&page=2").await, (vec![1], 3));
        assert_eq!(numbers(books, "?page=9").await, (vec![], 3));
        assert_eq!(numbers(books, "?status=open").await, (vec![3, 1], 2));
        assert_eq!(numbers(books, "?status=paid").await, (vec![2], 1));
        assert_eq!(numbers(books, "?status=draft").await, (vec![], 0));
        let open = data(books, "/invoices?status=open").await;
        assert_eq!(open["invoices"][0]["payment_date"], Value::Null);
        assert_eq!(open["invoices"][1]["items"].as_array().unwrap().len(), 1, "each has its own lines");
        let bad = get(books, "/invoices?status=due&page=0").await;
        assert_eq!(
            (bad.status, bad.details()),
            (400, vec!["page out_of_range".to_owned(), "status unknown_value".into()])
        );
    });
}

#[on_each_database]
fn invoice_of_another_organization_is_not_found(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let invoice = books.invoices().await[0].id;
        let token = fresh_token(books.world, &books.ada).await;
        let bob = books.world.user("bob").await;
        let other = books.world.organization(&bob, "Other").await;
        for id in [invoice.to_string(), "invoice_01h2xcejqtf2nbrexx3vqjhp41".into(), "1".into()] {
            let path = format!("/v1/organizations/{other}/billing/invoices/{id}");
            let refused = books.world.get(&path).bearer(&bob.access_token).refused().await;
            assert_eq!(refused, (404, "invoice_not_found".to_owned()));
        }
        let path = format!("{}/billing/invoices/{invoice}", books.place.organization_path());
        assert_eq!(books.world.get(&path).bearer(&bob.access_token).refused().await.0, 403);
        assert_eq!(books.world.get(&path).refused().await.0, 401);
        assert_eq!(books.world.get(&path).bearer(&token).send().await.status, 200);
    });
}

#[on_each_database]
fn invoice_is_printed(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 3_000_000, 1_234).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let path =
            format!("{}/billing/invoices/{}", books.place.organization_path(), books.invoices().await[0].id);
        let token = fresh_token(books.world, &books.ada).await;
        let page = books.world.get(&path).bearer(&token).header("accept", "text/html").send().await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        assert_eq!((page.header("vary"), page.header("cache-control")), ("accept", "private, no-store"));
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-")
                && policy.contains("frame-ancestors 'none'")
        );
        for words in [
            "<h1>Invoice 1</h1>",
            ">Open<",
            "Acme<br><small>org_",
            "<time datetime=\"2026-01-01\">1 Jan 2026</time> to <time datetime=\"2026-01-31\">31 Jan 2026</time> (UTC)",
            "<td>chat-a, prompt tokens</td><td>3,000,000</td>",
            "<dt>Volume discounts</dt><dd>-0.25 USD</dd>",
            // 7.50 + 0.0074 - 0.25 + 0.0026 = 7.26
            "<tr><td>Rounding</td><td></td><td></td><td class=\"pad0\">0.0026</td>",
            "<dt>Usage at list price</dt><dd title=\"7.507404 USD\">7.51 USD</dd>",
            "<dt>Total</dt><dd title=\"7.257404 USD\">7.26 USD</dd>",
            "<dt>Amount due</dt><dd title=\"7.257404 USD\">7.26 USD</dd>",
            "over the exact amount due, 7.257404 USD, stays",
        ] {
            assert!(page.text.contains(words), "{words}\n{}", page.text);
        }
        // Without credentials the page is refused too. The error is JSON, as elsewhere.
        let refused = books.world.get(&path).header("accept", "text/html").send().await;
        assert_eq!((refused.status, refused.code().as_str()), (401, "missing_credentials"));
    });
}

/// A step of a query plan, in the database's own format.
struct Step(String);

impl FromRow for Step {
    fn from_row(row: &Row) -> Result<Self, Error> {
        row.get("detail").or_else(|_| row.get("QUERY PLAN")).map(Self)
    }
}

#[on_each_database]
fn invoices_and_months_use_an_index(database: Database) {
    with_books(database, JANUARY, async |books| {
        let postgres = books.world.app.db.is_postgres();
        let explain = if postgres { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
        let mut tx = books.world.app.db.write().await.unwrap();
        let organization = books.place.organization.as_str();
        if postgres {
            // PostgreSQL reads a few rows by a full scan, and for an empty table all indexes cost the same.
            sql("SET LOCAL enable_seqscan = off").execute(&mut tx).await.unwrap();
            sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day,
                     month, requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
                 SELECT $1, 'p', 'k', 'm', 0, 'chat', 20000 + i, 660 + i / 30, 1, 1, 1, 1, 0
                 FROM generate_series(1, 600) i")
            .bind(organization)
            .execute(&mut tx)
            .await
            .unwrap();
            sql("ANALYZE usage_daily").execute(&mut tx).await.unwrap();
        }
        let list =
            sql(format!("{explain} {}", *invoices::LIST)).bind(organization).bind("open").bind(20).bind(0);
        let used = sql(format!("{explain} {}", months::BILLED)).bind(organization).bind(672);
        // Without statistics SQLite sorts the organization's rows instead.
        let month = if postgres {
            "usage_daily_organization_month"
        } else {
            "usage_daily_organization_month|PRIMARY KEY (organization_id=?"
        };
        for (statement, index) in [(list, "invoices_organization_id_month"), (used, month)] {
            let steps: Vec<Step> = statement.all(&mut tx).await.unwrap();
            let plan: Vec<_> = steps.into_iter().map(|Step(step)| step).collect();
            assert!(index.split('|').any(|index| plan.iter().any(|step| step.contains(index))), "{plan:?}");
        }
    });
}
