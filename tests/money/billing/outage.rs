//! An outage across the end of a month. The model servers keep their usage and report it after the outage,
//! and the close of the month includes it.

use serde_json::{Value, json};
use tollkeeper::clock::{Clock, Month, Time};
use tollkeeper::db::{Db, sql};
use tollkeeper::money::Nano;

use super::golden::assert_golden;
use support::faketime::FakeClock;
use support::postgres::Cluster;
use support::process::{Account, Place, Server, Start, until};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

/// Sets the clock of the service to a time, from which it continues.
fn set_time(clock: &FakeClock, time: &str) {
    let to = Time::parse(time).unwrap();
    clock.set_s((to.unix_ms() - Clock::System.now().unix_ms()).div_euclid(1_000));
}

/// Reports usage of `chat-m` at this time.
fn report(server: &Server, place: &Place, id: &str, time: &str, tokens: i64) {
    let event = json!({"id": id, "source": "vllm", "time": time, "api_key_id": place.key_id, "model": "chat-m",
                       "kind": "chat", "prompt_tokens": tokens, "completion_tokens": 0});
    let answer = server.ask("/service/v1/usage", &json!({ "events": [event] })).bare();
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
}

/// Returns the balance and the open month of the only wallet as text, and the amount due.
fn wallet(start: &Start) -> (String, Nano) {
    let db = Db::open(&start.database_settings()).unwrap();
    let (posted, month, due): (Nano, Month, Nano) = runtime().block_on(async {
        let mut tx = db.read().await.unwrap();
        let due = "SELECT CAST(COALESCE(SUM(due_nano), 0) AS BIGINT) FROM invoices";
        sql(format!("SELECT posted_nano, open_month, ({due}) FROM wallets")).one(&mut tx).await.unwrap()
    });
    (format!("= wallet {posted}, open month {month}"), due)
}

fn invoices(server: &Server, reader: &Account, place: &Place) -> Vec<Value> {
    let path = format!("/v1/organizations/{}/billing/invoices", place.organization());
    server.get(&path).bearer(&reader.access_token).data()["invoices"].as_array().unwrap().clone()
}

fn write_invoice(story: &mut String, invoice: &Value, due: Nano) {
    let text = |name: &str| invoice[name].as_str().unwrap().to_owned();
    let (month, amount, currency) = (&text("period_start")[..7], &invoice["amount"], text("currency"));
    let number = &invoice["number"];
    *story +=
        &format!("\nInvoice {number} for {month}: {amount} {currency}, {due} due, {}\n", text("status"));
    for item in invoice["items"].as_array().unwrap() {
        let (what, quantity) = (item["description"].as_str().unwrap(), &item["quantity"]);
        *story += &format!(
            "  {what}: {quantity} x {} = {}\n",
            item["unit_price"].as_f64().unwrap(),
            item["amount"]
        );
    }
}

fn tell(backend: &str, clock: &FakeClock, start: &Start) {
    let mut story = String::new();
    set_time(clock, "2026-01-15T09:00:00Z");
    let server = start.run();
    let place = server.settle(&server.sign_up("ada"));
    let credit = ["credit", "add", "--organization", place.organization(), "--amount", "10"];
    let credit = start.command(&[&credit[..], &["--reference", "payment 1"]].concat());
    assert_eq!(credit.code, Some(0), "{}", credit.log);
    report(&server, &place, "1", "2026-01-15T09:00:00Z", 1_000_000);
    assert_eq!(server.stop().code, Some(0));
    set_time(clock, "2026-01-31T09:00:00Z");
    assert_eq!(start.run().stop().code, Some(0));
    story += "2026-01-31 09:00  a credit of 10 is bought, 1000000 tokens are used, and the service stops\n";

    set_time(clock, "2026-02-03T09:00:00Z");
    let back_at = clock.now();
    let server = start.run();
    server.wait_until_job("billing");
    start.wait_until_seen(back_at);
    story += &format!("2026-02-03 09:00  the service is back\n2026-02-03 09:00  {}\n", wallet(start).0);
    let reader = server.log_in("ada");
    assert_eq!(invoices(&server, &reader, &place), [] as [Value; 0], "{}", server.log());
    report(&server, &place, "2", "2026-01-31T10:00:00Z", 3_000_000);
    story += "2026-02-03 09:00  3000000 tokens of 2026-01-31 are reported\n";
    story += &format!("2026-02-03 09:00  {}\n", wallet(start).0);

    // Two hours pass. A restart of the server makes the job run immediately.
    runtime().block_on(async {
        let db = Db::open(&start.database_settings()).unwrap();
        let mut tx = db.write().await.unwrap();
        let up = sql("UPDATE service_clock SET up_since_at = up_since_at - 7200000");
        up.execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    });
    assert_eq!(server.stop().code, Some(0));
    let server = start.run();
    assert!(until(|| !invoices(&server, &reader, &place).is_empty()), "{}", server.log());
    let (balance, due) = wallet(start);
    story += &format!("2026-02-03 11:00  January is closed\n2026-02-03 11:00  {balance}\n");
    let all = invoices(&server, &reader, &place);
    assert_eq!(all.len(), 1, "{all:?}");
    write_invoice(&mut story, &all[0], due);
    assert_golden("an_outage_across_the_month_s_end", backend, &story);
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    assert_eq!(server.stop().code, Some(0));
}

#[on_each_database]
fn usage_kept_during_an_outage_is_billed_in_its_month(database: Database) {
    let catalog = std::path::absolute("tests/money/billing/half_price.toml").unwrap();
    let folder = Folder::new();
    let Some(clock) = FakeClock::new(&folder.0, "an outage") else { return };
    set_time(&clock, "2026-01-15T09:00:00Z");
    let cluster = match database {
        Database::Sqlite => None,
        Database::Postgres => {
            let Some(cluster) = Cluster::by_clock(&clock) else { return };
            Some(cluster)
        }
    };
    let url = cluster.as_ref().map(|cluster| runtime().block_on(cluster.empty_database()));
    let start = Start::new(&folder.0)
        .database(url.as_deref())
        .set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap())
        // The list of invoices is read until the month is closed, which can take a long time on a busy
        // machine.
        .set("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "1000000");
    tell(database.name(), &clock, &clock.rule(start));
}
