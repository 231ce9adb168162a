//! Whole months, compared with texts that were checked by hand: `golden/NAME.txt` next to this file.
//!
//! A text begins with hand-written sums that follow only from the contract and the prices of `catalog.toml`;
//! [`by_hand`] recalculates them. The transcript of the books follows below the separator line.
//! `TOLLKEEPER_TEST_BLESS=1` rewrites the transcript, but a figure without a sum still fails.

use tollkeeper::billing::audit;
use tollkeeper::clock::Day;

use super::by_hand;
use support::transcript::{Books, CATALOG, with_configured_books};
use support::{Database, on_each_database};

/// The separator between the sums and the transcript.
const LINE: &str = "---- The books ----\n";

pub fn golden(database: Database, name: &str, start: &str, story: impl AsyncFn(&mut Books)) {
    golden_in(database, "USD", name, start, story);
}

pub fn golden_in(
    database: Database,
    currency: &str,
    name: &str,
    start: &str,
    story: impl AsyncFn(&mut Books),
) {
    golden_with_settings(
        database,
        &[CATALOG, ("TOLLKEEPER_BILLING__CURRENCY", currency)],
        name,
        start,
        story,
    );
}

/// Does the same as [`golden`], with additional settings such as a catalog.
pub fn golden_with_settings(
    database: Database,
    settings: &[(&str, &str)],
    name: &str,
    start: &str,
    story: impl AsyncFn(&mut Books),
) {
    with_configured_books(database, settings, start, async |books| {
        story(books).await;
        let transcript = books.finish().await;
        assert_golden(name, books.world.backend, &transcript);
        let report = audit::check(&books.world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.drifts);
    });
}

/// Compares a transcript with the golden text of this name, and its figures with the sums in that text.
pub fn assert_golden(name: &str, backend: &str, transcript: &str) {
    let file = format!("tests/money/billing/golden/{name}.txt");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let (sums, mut expected) = text.split_once(LINE).unwrap_or((&text, ""));
    if std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some() {
        std::fs::write(&file, format!("{sums}{LINE}{transcript}")).unwrap();
        expected = transcript;
    }
    assert_eq!(transcript, expected, "on {backend}, {file}");
    by_hand::check(sums, transcript);
}

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

#[on_each_database]
fn discounts_across_tiers(database: Database) {
    golden(database, "discounts_across_tiers", "2026-01-01T09:00:00Z", async |books| {
        books.buy_credit("100", "payment 1").await;
        books.set_time("2026-01-04T10:00:00Z");
        books.use_today("chat-a", 4_000_000, 500_000).await;
        books.set_time("2026-01-05T10:00:00Z");
        books.use_today("chat-a", 8_000_000, 0).await;
        books.write_balance().await;
        books.set_time("2026-02-01T23:59:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn price_change_inside_the_month(database: Database) {
    golden(database, "a_price_change_inside_the_month", "2026-01-01T09:00:00Z", async |books| {
        books.set_time("2026-01-12T10:00:00Z");
        books.use_today("chat-a", 700_000, 100).await;
        // This usage is reported later but is of an earlier day, so it comes first.
        books.use_on_day(day("2026-01-05"), 1, "chat-a", 800_000, 100).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn late_usage(database: Database) {
    golden(database, "late_usage", "2026-01-01T09:00:00Z", async |books| {
        books.set_time("2026-01-31T10:00:00Z");
        books.use_today("chat-a", 1_000, 0).await;
        // Usage that is reported on the day of grace is still on January's invoice.
        books.set_time("2026-02-01T10:00:00Z");
        books.use_on_day(day("2026-01-31"), 0, "chat-a", 1_000, 0).await;
        books.use_today("chat-a", 10_000, 10).await;
        books.set_time("2026-02-02T00:05:00Z");
        books.run_scheduler().await;
        books.use_on_day(day("2026-01-31"), 0, "chat-a", 3_000, 500).await;
        books.use_on_day(day("2026-01-09"), 0, "chat-a", 1_000_000, 0).await;
        books.set_time("2026-03-02T00:05:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn credits_that_end(database: Database) {
    golden(database, "credits_that_end", "2026-01-01T09:00:00Z", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.set_time("2026-01-12T10:00:00Z");
        books.use_today("chat-a", 0, 500_000).await;
        books.write_balance().await;
        books.set_time("2026-01-20T00:00:00Z");
        // The grant has expired, even though the scheduler hasn't run.
        books.use_today("chat-a", 0, 100_000).await;
        books.write_balance().await;
        books.run_scheduler().await;
        books.run_scheduler().await;
        books.write_balance().await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn month_without_usage(database: Database) {
    golden(database, "a_month_without_usage", "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-03-15T09:00:00Z");
        // The scheduler runs after three months, and closes them one after another.
        books.use_today("chat-a", 2_000, 0).await;
        books.set_time("2026-05-15T09:00:00Z");
        books.run_scheduler().await;
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn february_has_28_days_or_29(database: Database) {
    for (name, first, last, closes) in [
        ("february_of_28_days", "2026-02-01T00:00:00Z", "2026-02-28T23:59:59Z", "2026-03-02T00:00:00Z"),
        ("february_of_29_days", "2024-02-01T00:00:00Z", "2024-02-29T23:59:59Z", "2024-03-02T00:00:00Z"),
    ] {
        golden(database, name, first, async |books| {
            books.use_today("chat-a", 1_000, 0).await;
            books.set_time(last);
            books.use_today("chat-a", 1_000, 0).await;
            books.set_time(&closes.replace("02T00:00:00", "01T00:00:00"));
            books.use_today("chat-a", 5_000, 0).await;
            books.set_time(closes);
            books.run_scheduler().await;
        });
    }
}

#[on_each_database]
fn end_of_the_year(database: Database) {
    golden(database, "the_year_s_end", "2026-12-31T23:59:00Z", async |books| {
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2027-01-01T00:00:00Z");
        books.use_today("chat-a", 2_000, 0).await;
        books.set_time("2027-01-02T00:00:00Z");
        books.run_scheduler().await;
        books.set_time("2027-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn open_and_covered_by_credits(database: Database) {
    golden(database, "open_and_covered_by_credits", "2026-01-15T09:00:00Z", async |books| {
        books.buy_credit("2", "payment 1").await;
        books.use_today("chat-a", 0, 1_000_000).await;
        books.set_time("2026-02-01T08:00:00Z");
        // This usage is February's debt, not January's.
        books.use_today("chat-a", 0, 100_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.buy_credit("1.5", "payment 2").await;
        books.set_time("2026-02-10T00:00:00Z");
        books.buy_credit("2.5", "payment 3").await;
        books.write_balance().await;
        books.buy_credit("10", "payment 4").await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn paid_from_outside(database: Database) {
    golden(database, "paid_from_outside", "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-15T09:00:00Z");
        books.use_today("chat-a", 0, 200_000).await;
        books.set_time("2026-03-15T09:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        // The newer invoice is paid first, and the older one stays open.
        books.pay_invoice(2).await;
        books.write_balance().await;
        books.pay_invoice(2).await;
        books.pay_invoice(1).await;
    });
}

#[on_each_database]
fn void_invoice(database: Database) {
    golden(database, "taken_back", "2026-01-15T09:00:00Z", async |books| {
        books.buy_credit("2", "payment 1").await;
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-15T09:00:00Z");
        books.run_scheduler().await;
        books.use_today("chat-a", 0, 100_000).await;
        books.set_time("2026-03-15T09:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.void_invoice(1).await;
        books.void_invoice(1).await;
        books.write_balance().await;
        books.set_time("2026-03-16T09:00:00Z");
        books.void_invoice(2).await;
    });
}

#[on_each_database]
fn less_than_a_nano(database: Database) {
    golden(database, "less_than_a_nano", "2026-01-15T09:00:00Z", async |books| {
        // Two keys have one row each: 0.7 and 1.4 nano, of which zero and one are posted. Later the second
        // row has 2.1 nano, of which two are posted.
        books.use_on_day(day("2026-01-15"), 0, "embed-e", 1, 0).await;
        books.use_on_day(day("2026-01-15"), 1, "embed-e", 2, 0).await;
        books.write_balance().await;
        books.use_on_day(day("2026-01-15"), 1, "embed-e", 1, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}
