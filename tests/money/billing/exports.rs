//! The charges of a month in the FOCUS format, with sums calculated by hand, and the operations and files
//! that export them.

mod command;
mod folder;
mod validator;
mod versions;

use http::Method;
use tollkeeper::clock::Day;
use tollkeeper::money::Pico;

use support::billed::fresh_token;
use support::csv::{self, Row};
use support::http::{Answer, Call};
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

/// Start of the history, and the first time at which January can be closed.
const START: &str = "2026-01-01T09:00:00Z";
const CLOSES: &str = "2026-02-02T00:00:00Z";

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

async fn ask(books: &Books<'_>, query: &str) -> Answer {
    let token = fresh_token(books.world, &books.ada).await;
    let path = format!("{}/billing/export{query}", books.place.organization_path());
    Call::new(&books.world.public, Method::GET, &path).bearer(&token).send().await
}

/// Returns the exported file of a month.
async fn file(books: &Books<'_>, month: &str) -> String {
    let answer = ask(books, &format!("?format=focus&month={month}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

/// Returns the description, key, amount and document of each line, sorted. Keys and invoices are numbered,
/// since their ids are random.
async fn lines(books: &Books<'_>, month: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in csv::rows(&file(books, month).await) {
        let key = books.keys.iter().position(|key| *key == row["ResourceId"]);
        let key = key.map(|place| format!(" by key {}", place + 1)).unwrap_or_default();
        let times = format!("{} x {} = ", row["PricingQuantity"], row["ListUnitPrice"]);
        let times = if row["PricingQuantity"].is_empty() { String::new() } else { times };
        let class = if row["ChargeClass"].is_empty() { "" } else { ", correction" };
        let (start, end) = (&row["ChargePeriodStart"][..10], &row["ChargePeriodEnd"][..10]);
        lines.push(format!(
            "{start} to {end}: {}{key}: {times}{} on {}{class}",
            row["ChargeDescription"],
            row["BilledCost"],
            document(books, &row["InvoiceId"]).await
        ));
    }
    lines.sort();
    lines
}

async fn document(books: &Books<'_>, id: &str) -> String {
    if id.is_empty() {
        return "nothing yet".to_owned();
    }
    if id.starts_with("credit_note_") {
        return "a credit note".to_owned();
    }
    let invoices = books.invoices().await;
    let number = invoices.iter().find(|invoice| invoice.id.to_string() == id).map(|invoice| invoice.number);
    format!("invoice {}", number.unwrap())
}

fn cost(row: &Row, column: &str) -> i128 {
    Pico::parse(&row[column]).unwrap().units()
}

/// Creates two months. January has two keys, two models, a discount, and a row that is posted without a
/// fraction of a nano. February has late usage of January, a correction of January, and its own usage.
async fn two_months(books: &mut Books<'_>) {
    books.set_time("2026-01-05T10:00:00Z");
    books.use_today("chat-a", 1_000, 10).await;
    books.set_time("2026-01-12T10:00:00Z");
    books.use_on_day(day("2026-01-12"), 1, "chat-a", 1_200_000, 0).await;
    books.use_today("embed-e", 3, 0).await;
    books.set_time(CLOSES);
    books.run_scheduler().await;
    books.set_time("2026-02-05T10:00:00Z");
    books.use_on_day(day("2026-01-31"), 0, "chat-a", 4_000, 0).await;
    books.correct_event(1, 500, 0).await;
    books.set_time("2026-02-10T10:00:00Z");
    books.use_today("chat-a", 100, 0).await;
}

/// 1,201,000 prompt tokens of chat-a: 201,000 above the threshold x 0.0000025 x 5% = 0.025125. The invoice is
/// 0.002 + 0.00006 + 3 + 0.000000002 - 0.025125 = 2.976935002, because the 0.0000000021 of embed-e are
/// rounded down.
const JANUARY: [&str; 6] = [
    "2026-01-01 to 2026-02-01: Rounding: -0.0000000001 on invoice 1",
    "2026-01-01 to 2026-02-01: Volume discount: chat-a, prompt tokens: -0.025125 on invoice 1",
    "2026-01-05 to 2026-01-06: chat-a, completion tokens by key 1: 10.0 x 0.000006 = 0.00006 on invoice 1",
    "2026-01-05 to 2026-01-06: chat-a, prompt tokens by key 1: 1000.0 x 0.000002 = 0.002 on invoice 1",
    "2026-01-12 to 2026-01-13: chat-a, prompt tokens by key 2: 1200000.0 x 0.0000025 = 3.0 on invoice 1",
    "2026-01-12 to 2026-01-13: embed-e, input tokens by key 1: 3.0 x 0.0000000007 = 0.0000000021 on invoice 1",
];

/// The correction refunds 500 x 0.000002, and takes back 500 x 0.0000025 x 5% = 0.0000625 of the discount.
/// All late tokens are above the threshold: 4,000 x 0.0000025 x 5% = 0.0005. The invoice is 0.01 - 0.0005 +
/// 0.00025 = 0.00975.
const FEBRUARY: [&str; 7] = [
    "2026-01-01 to 2026-02-01: Correction of 2026-01: chat-a, prompt tokens: -500.0 x 0.000002 = -0.001 on a credit note, correction",
    "2026-01-01 to 2026-02-01: Volume discount of 2026-01 taken back: chat-a, prompt tokens: 0.0000625 on a credit note, correction",
    "2026-01-01 to 2026-02-01: Volume discount of 2026-01: chat-a, prompt tokens: -0.0005 on invoice 2, correction",
    "2026-01-05 to 2026-01-06: Correction of 2026-01 that isn't on this invoice: chat-a, prompt tokens: 500.0 x 0.000002 = 0.001 on invoice 2, correction",
    "2026-01-05 to 2026-01-06: Correction of 2026-01: chat-a, prompt tokens by key 1: -500.0 x 0.000002 = -0.001 on invoice 2, correction",
    "2026-01-31 to 2026-02-01: Late usage of 2026-01: chat-a, prompt tokens by key 1: 4000.0 x 0.0000025 = 0.01 on invoice 2, correction",
    "2026-02-10 to 2026-02-11: chat-a, prompt tokens by key 1: 100.0 x 0.0000025 = 0.00025 on invoice 2",
];

#[on_each_database]
fn lines_are_those_of_the_documents(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let open: Vec<_> = FEBRUARY.iter().map(|line| line.replace("invoice 2", "nothing yet")).collect();
        assert_eq!(lines(books, "2026-02").await, open, "an open month is exported as if it closed now");
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        let amounts: Vec<_> = books.invoices().await.iter().map(|i| i.amount.to_string()).collect();
        assert_eq!(amounts, ["2.976935002", "0.00975"]);
        assert_eq!(lines(books, "2026-01").await, JANUARY);
        assert_eq!(lines(books, "2026-02").await, FEBRUARY);
        assert_eq!(lines(books, "2026-03").await, [""; 0]);
        books.set_time("2026-03-05T00:00:00Z");
        books.void_invoice(2).await;
        assert_eq!(
            lines(books, "2026-03").await,
            ["2026-02-01 to 2026-03-01: Invoice 2 of 2026-02 is void: -0.00975 on invoice 2, correction"]
        );
        assert_eq!(lines(books, "2026-02").await, FEBRUARY, "a closed month never changes");
        // The event was on the void invoice, so the correction must not refund the part that voiding has
        // refunded.
        books.correct_event(4, 4_000, 0).await;
        assert_eq!(
            lines(books, "2026-03").await,
            [
                "2026-01-31 to 2026-02-01: Correction of 2026-01 that isn't on this invoice: chat-a, prompt tokens: \
                 4000.0 x 0.0000025 = 0.01 on nothing yet, correction",
                "2026-01-31 to 2026-02-01: Correction of 2026-01: chat-a, prompt tokens by key 1: \
                 -4000.0 x 0.0000025 = -0.01 on nothing yet, correction",
                "2026-02-01 to 2026-03-01: Invoice 2 of 2026-02 is void: -0.00975 on invoice 2, correction",
            ]
        );
    });
}

#[on_each_database]
fn every_line_is_complete(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let rows = csv::rows(&file(books, "2026-02").await);
        assert_eq!(rows.len(), 7);
        for row in &rows {
            assert_eq!(row["BillingPeriodStart"], "2026-02-01T00:00:00Z");
            assert_eq!(row["BillingPeriodEnd"], "2026-03-01T00:00:00Z");
            assert_eq!(row["BillingAccountId"], books.place.organization);
            assert_eq!((&*row["BillingAccountName"], &*row["BillingCurrency"]), ("Acme", "USD"));
            let names = ["ProviderName", "PublisherName", "InvoiceIssuerName"].map(|name| &*row[name]);
            assert_eq!(names, ["tollkeeper"; 3]);
            for column in ["ListCost", "ContractedCost", "EffectiveCost"] {
                assert_eq!(row[column], row["BilledCost"], "{column}");
            }
            let is_usage = row["ChargeCategory"] == "Usage";
            for column in ["ConsumedUnit", "PricingUnit"] {
                assert_eq!(row[column], if is_usage { "Tokens" } else { "" }, "{column}");
            }
            assert_eq!(row["ConsumedQuantity"], row["PricingQuantity"]);
            assert_eq!(row["x_Model"], "chat-a");
        }
        let of_key: Vec<_> = rows.iter().filter(|row| !row["ResourceId"].is_empty()).collect();
        assert_eq!(of_key.len(), 3);
        for row in of_key {
            assert_eq!((&*row["ResourceName"], &*row["ResourceType"]), ("one", "API Key"));
            assert_eq!((&*row["SubAccountId"], &*row["SubAccountType"]), (&*books.place.project, "Project"));
            assert_eq!(row["SkuId"], "chat-a/prompt");
        }
    });
}

#[on_each_database]
fn deleted_keys_and_projects_stay(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let token = fresh_token(books.world, &books.ada).await;
        let key = format!("{}/api-keys/{}", books.place.project_path(), books.keys[1]);
        for path in [key, books.place.project_path()] {
            books.world.call(Method::DELETE, &path).bearer(&token).data().await;
        }
        assert_eq!(lines(books, "2026-01").await, JANUARY);
        for row in csv::rows(&file(books, "2026-01").await) {
            if row["ChargeCategory"] == "Usage" {
                assert!(["one", "two"].contains(&&*row["ResourceName"]), "{row:?}");
                assert_eq!(
                    row["SubAccountName"], books.place.project,
                    "its name was removed, but not its id"
                );
            }
        }
    });
}

#[on_each_database]
fn answer_is_a_file_that_no_cache_keeps(database: Database) {
    with_books(database, START, async |books| {
        two_months(books).await;
        let answer = ask(books, "?format=focus&month=2026-01").await;
        assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
        let name = format!("attachment; filename=\"focus_{}_2026-01.csv\"", books.place.organization);
        assert_eq!(answer.header("content-disposition"), name);
        assert_eq!(answer.header("cache-control"), "private, no-store");
        assert!(csv::rows(&answer.text).iter().all(|row| cost(row, "BilledCost") != 0));
        let nothing = ask(books, "?format=focus&month=2031-01").await;
        assert_eq!((nothing.status, csv::rows(&nothing.text).len()), (200, 0));
        for (query, details) in [
            ("", vec!["format required", "month required"]),
            ("?format=csv&month=2026-01", vec!["format unknown_value"]),
            ("?format=focus&month=2026-13", vec!["month invalid_date"]),
            ("?format=focus&month=2026-1", vec!["month invalid_date"]),
            ("?format=focus&month=2026-01-01", vec!["month invalid_date"]),
            ("?format=focus&month=0000-01", vec!["month invalid_date"]),
            ("?format=focus&month=2026-01&version=1.1", vec!["version unknown_value"]),
            ("?format=focus&month=2026-01&dataset=invoices", vec!["dataset unknown_value"]),
            ("?format=focus&month=2026-01&dataset=invoice_detail", vec!["dataset unknown_value"]),
            ("?format=focus&month=2026-01&version=1.3&dataset=billing_period", vec!["dataset unknown_value"]),
        ] {
            let refused = ask(books, query).await;
            assert_eq!(
                (refused.status, refused.details()),
                (400, details.iter().map(ToString::to_string).collect())
            );
        }
    });
}

#[on_each_database]
fn name_never_becomes_a_formula(database: Database) {
    with_books(database, START, async |books| {
        let token = fresh_token(books.world, &books.ada).await;
        let key = format!("{}/api-keys/{}", books.place.project_path(), books.keys[0]);
        books.use_today("free-f", 1, 0).await;
        for (name, cell) in [("x;=1+1;y", "x;'=1+1;y"), ("=HYPERLINK(\"x\", 1)", "'=HYPERLINK(\"x\", 1)")] {
            let name = serde_json::json!({ "name": name });
            let renamed = books.world.call(Method::PUT, &key).json(&name).bearer(&token).send().await;
            assert_eq!(renamed.status, 200, "{}", renamed.text);
            let rows = csv::rows(&file(books, "2026-01").await);
            assert_eq!((rows.len(), &*rows[0]["ResourceName"]), (1, cell));
        }
        let rows = csv::rows(&file(books, "2026-01").await);
        assert_eq!((&*rows[0]["ResourceId"], &*rows[0]["BilledCost"]), (&*books.keys[0], "0.0"));
    });
}
