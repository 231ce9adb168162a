//! A discount belongs to the month of use, whatever was billed when: stories with one tier, half the price above a million tokens.

use super::books::Books;
use super::golden::golden_set;

fn tiered(name: &str, story: impl AsyncFn(&mut Books)) {
    let settings = [("TOLLKEEPER_CATALOG_FILE", "tests/it/billing/half_price.toml")];
    golden_set(&settings, name, "2026-01-15T09:00:00Z", story);
}

/// The scheduler has its turn when January can be closed.
async fn january_ends(books: &mut Books<'_>) {
    books.at("2026-02-02T00:00:00Z");
    books.schedule().await;
    books.at("2026-02-03T09:00:00Z");
}

async fn february_ends(books: &mut Books<'_>) {
    books.at("2026-03-02T00:00:00Z");
    books.schedule().await;
}

#[test]
fn all_is_corrected_after_the_close() {
    tiered("all_is_corrected_after_the_close", async |books| {
        books.buys("10", "payment 1").await;
        books.used("chat-m", 2_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 2_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn half_is_corrected_after_the_close() {
    tiered("half_is_corrected_after_the_close", async |books| {
        books.buys("10", "payment 1").await;
        books.used("chat-m", 2_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 1_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn a_correction_after_the_price_was_doubled() {
    tiered("a_correction_after_the_price_was_doubled", async |books| {
        books.buys("10", "payment 1").await;
        books.used("chat-doubled", 2_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 1_000_000, 0).await;
        books.used("chat-doubled", 3_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn late_usage_above_the_tier_of_its_month() {
    tiered("late_usage_above_the_tier_of_its_month", async |books| {
        books.buys("10", "payment 1").await;
        books.used("chat-m", 1_000_000, 0).await;
        january_ends(books).await;
        books.used_at("2026-01-31T10:00:00Z", "chat-m", 3_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn two_months_below_the_tier_in_one_bill() {
    tiered("two_months_below_the_tier_in_one_bill", async |books| {
        books.buys("10", "payment 1").await;
        january_ends(books).await;
        books.used_at("2026-01-31T10:00:00Z", "chat-m", 1_000_000, 0).await;
        books.used("chat-m", 1_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn a_correction_that_costs_a_discount() {
    tiered("a_correction_that_costs_a_discount", async |books| {
        books.used_at("2026-01-05T10:00:00Z", "chat-raised", 1_000_000, 0).await;
        books.used("chat-raised", 1_000_000, 0).await;
        january_ends(books).await;
        books.pays(1).await;
        books.corrects(1, 1_000_000, 0).await;
        february_ends(books).await;
    });
}

#[test]
fn cheap_late_usage_before_dear_usage() {
    tiered("cheap_late_usage_before_dear_usage", async |books| {
        books.buys("10", "payment 1").await;
        books.used("chat-raised", 2_000_000, 0).await;
        january_ends(books).await;
        books.used_at("2026-01-05T10:00:00Z", "chat-raised", 1_000_000, 0).await;
        february_ends(books).await;
    });
}
