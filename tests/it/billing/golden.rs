//! Whole months against texts that were checked by hand: `golden/NAME.txt` beside this file.
//!
//! A text begins with the sums of a person who knows the contract's words and the prices of `catalog.toml`, and nothing of the
//! code; [`by_hand`] does them again. Below the line is what the books say. `TOLLKEEPER_TEST_BLESS=1` writes that part anew; a figure
//! that no sum comes to fails all the same.

use tollkeeper::billing::audit;
use tollkeeper::clock::Day;

use super::books::{Books, CATALOG, on_each_set};
use super::by_hand;

/// What stands between the two parts of a text.
const LINE: &str = "---- The books ----\n";

pub fn golden(name: &str, start: &str, story: impl AsyncFn(&mut Books)) {
    golden_in("USD", name, start, story);
}

pub fn golden_in(currency: &str, name: &str, start: &str, story: impl AsyncFn(&mut Books)) {
    golden_set(&[CATALOG, ("TOLLKEEPER_BILLING__CURRENCY", currency)], name, start, story);
}

/// With settings of its own, the catalog among them.
pub fn golden_set(settings: &[(&str, &str)], name: &str, start: &str, story: impl AsyncFn(&mut Books)) {
    on_each_set(settings, start, async |books| {
        story(books).await;
        let told = books.end().await;
        let file = format!("tests/it/billing/golden/{name}.txt");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let (sums, mut expected) = text.split_once(LINE).unwrap_or((&text, ""));
        if std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some() {
            std::fs::write(&file, format!("{sums}{LINE}{told}")).unwrap();
            expected = &told;
        }
        assert_eq!(told, expected, "on {}, {file}", books.world.backend);
        by_hand::check(sums, &told);
        let report = audit::check(&books.world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.drifts);
    });
}

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

#[test]
fn discounts_across_tiers() {
    golden("discounts_across_tiers", "2026-01-01T09:00:00Z", async |books| {
        books.buys("100", "payment 1").await;
        books.at("2026-01-04T10:00:00Z");
        books.used("chat-a", 4_000_000, 500_000).await;
        books.at("2026-01-05T10:00:00Z");
        books.used("chat-a", 8_000_000, 0).await;
        books.stand().await;
        books.at("2026-02-01T23:59:00Z");
        books.schedule().await;
        books.stand().await;
        books.at("2026-02-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn a_price_change_inside_the_month() {
    golden("a_price_change_inside_the_month", "2026-01-01T09:00:00Z", async |books| {
        books.at("2026-01-12T10:00:00Z");
        books.used("chat-a", 700_000, 100).await;
        // Told later, and used before: it comes first.
        books.used_on(day("2026-01-05"), 1, "chat-a", 800_000, 100).await;
        books.at("2026-02-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn late_usage() {
    golden("late_usage", "2026-01-01T09:00:00Z", async |books| {
        books.at("2026-01-31T10:00:00Z");
        books.used("chat-a", 1_000, 0).await;
        // Within the day of grace it is still January's.
        books.at("2026-02-01T10:00:00Z");
        books.used_on(day("2026-01-31"), 0, "chat-a", 1_000, 0).await;
        books.used("chat-a", 10_000, 10).await;
        books.at("2026-02-02T00:05:00Z");
        books.schedule().await;
        books.used_on(day("2026-01-31"), 0, "chat-a", 3_000, 500).await;
        books.used_on(day("2026-01-09"), 0, "chat-a", 1_000_000, 0).await;
        books.at("2026-03-02T00:05:00Z");
        books.schedule().await;
    });
}

#[test]
fn credits_that_end() {
    golden("credits_that_end", "2026-01-01T09:00:00Z", async |books| {
        books.buys("10", "payment 1").await;
        books.is_given("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.at("2026-01-12T10:00:00Z");
        books.used("chat-a", 0, 500_000).await;
        books.stand().await;
        books.at("2026-01-20T00:00:00Z");
        // It is over, whether or not the scheduler has been there.
        books.used("chat-a", 0, 100_000).await;
        books.stand().await;
        books.schedule().await;
        books.schedule().await;
        books.stand().await;
        books.at("2026-02-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn a_month_without_usage() {
    golden("a_month_without_usage", "2026-01-15T09:00:00Z", async |books| {
        books.used("chat-a", 1_000, 0).await;
        books.at("2026-03-15T09:00:00Z");
        // Three months after the last look: one after the other.
        books.used("chat-a", 2_000, 0).await;
        books.at("2026-05-15T09:00:00Z");
        books.schedule().await;
        books.schedule().await;
    });
}

#[test]
fn february_has_28_days_or_29() {
    for (name, first, last, closes) in [
        ("february_of_28_days", "2026-02-01T00:00:00Z", "2026-02-28T23:59:59Z", "2026-03-02T00:00:00Z"),
        ("february_of_29_days", "2024-02-01T00:00:00Z", "2024-02-29T23:59:59Z", "2024-03-02T00:00:00Z"),
    ] {
        golden(name, first, async |books| {
            books.used("chat-a", 1_000, 0).await;
            books.at(last);
            books.used("chat-a", 1_000, 0).await;
            books.at(&closes.replace("02T00:00:00", "01T00:00:00"));
            books.used("chat-a", 5_000, 0).await;
            books.at(closes);
            books.schedule().await;
        });
    }
}

#[test]
fn the_year_s_end() {
    golden("the_year_s_end", "2026-12-31T23:59:00Z", async |books| {
        books.used("chat-a", 1_000, 0).await;
        books.at("2027-01-01T00:00:00Z");
        books.used("chat-a", 2_000, 0).await;
        books.at("2027-01-02T00:00:00Z");
        books.schedule().await;
        books.at("2027-02-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn open_and_covered_by_credits() {
    golden("open_and_covered_by_credits", "2026-01-15T09:00:00Z", async |books| {
        books.buys("2", "payment 1").await;
        books.used("chat-a", 0, 1_000_000).await;
        books.at("2026-02-01T08:00:00Z");
        // This is February's debt, not January's.
        books.used("chat-a", 0, 100_000).await;
        books.at("2026-02-02T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.buys("1.5", "payment 2").await;
        books.at("2026-02-10T00:00:00Z");
        books.buys("2.5", "payment 3").await;
        books.stand().await;
        books.buys("10", "payment 4").await;
        books.at("2026-03-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn paid_from_outside() {
    golden("paid_from_outside", "2026-01-15T09:00:00Z", async |books| {
        books.used("chat-a", 0, 500_000).await;
        books.at("2026-02-15T09:00:00Z");
        books.used("chat-a", 0, 200_000).await;
        books.at("2026-03-15T09:00:00Z");
        books.schedule().await;
        books.stand().await;
        // The younger one first: the older one waits on.
        books.pays(2).await;
        books.stand().await;
        books.pays(2).await;
        books.pays(1).await;
    });
}

#[test]
fn taken_back() {
    golden("taken_back", "2026-01-15T09:00:00Z", async |books| {
        books.buys("2", "payment 1").await;
        books.used("chat-a", 0, 500_000).await;
        books.at("2026-02-15T09:00:00Z");
        books.schedule().await;
        books.used("chat-a", 0, 100_000).await;
        books.at("2026-03-15T09:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.voids(1).await;
        books.voids(1).await;
        books.stand().await;
        books.at("2026-03-16T09:00:00Z");
        books.voids(2).await;
    });
}

#[test]
fn less_than_a_nano() {
    golden("less_than_a_nano", "2026-01-15T09:00:00Z", async |books| {
        // Two keys, a row each: 0.7 and 1.4 nano, of which nothing and one are posted; then 2.1, of which two are.
        books.used_on(day("2026-01-15"), 0, "embed-e", 1, 0).await;
        books.used_on(day("2026-01-15"), 1, "embed-e", 2, 0).await;
        books.stand().await;
        books.used_on(day("2026-01-15"), 1, "embed-e", 1, 0).await;
        books.at("2026-02-02T00:00:00Z");
        books.schedule().await;
    });
}
