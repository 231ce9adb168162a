//! Discounts belong to the month in which usage happened, even if it is billed later. The catalog has one
//! tier: half the price above a million tokens.

use super::golden::golden_with_settings;
use support::transcript::Books;
use support::{Database, on_each_database};

fn tiered(database: Database, name: &str, story: impl AsyncFn(&mut Books)) {
    let settings = [("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/half_price.toml")];
    golden_with_settings(database, &settings, name, "2026-01-15T09:00:00Z", story);
}

/// Runs the scheduler as soon as January can be closed.
async fn close_january(books: &mut Books<'_>) {
    books.set_time("2026-02-02T00:00:00Z");
    books.run_scheduler().await;
    books.set_time("2026-02-03T09:00:00Z");
}

async fn close_february(books: &mut Books<'_>) {
    books.set_time("2026-03-02T00:00:00Z");
    books.run_scheduler().await;
}

#[on_each_database]
fn everything_is_corrected_after_the_close(database: Database) {
    tiered(database, "all_is_corrected_after_the_close", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-m", 2_000_000, 0).await;
        close_january(books).await;
        books.correct_event(1, 2_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn half_is_corrected_after_the_close(database: Database) {
    tiered(database, "half_is_corrected_after_the_close", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-m", 2_000_000, 0).await;
        close_january(books).await;
        books.correct_event(1, 1_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn correction_after_a_price_change(database: Database) {
    tiered(database, "a_correction_after_the_price_was_doubled", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-doubled", 2_000_000, 0).await;
        close_january(books).await;
        books.correct_event(1, 1_000_000, 0).await;
        books.use_today("chat-doubled", 3_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn late_usage_above_the_tier_of_its_month(database: Database) {
    tiered(database, "late_usage_above_the_tier_of_its_month", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-m", 1_000_000, 0).await;
        close_january(books).await;
        books.use_at("2026-01-31T10:00:00Z", "chat-m", 3_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn two_months_below_the_tier_in_one_invoice(database: Database) {
    tiered(database, "two_months_below_the_tier_in_one_bill", async |books| {
        books.buy_credit("10", "payment 1").await;
        close_january(books).await;
        books.use_at("2026-01-31T10:00:00Z", "chat-m", 1_000_000, 0).await;
        books.use_today("chat-m", 1_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn correction_removes_a_discount(database: Database) {
    tiered(database, "a_correction_that_costs_a_discount", async |books| {
        books.use_at("2026-01-05T10:00:00Z", "chat-raised", 1_000_000, 0).await;
        books.use_today("chat-raised", 1_000_000, 0).await;
        close_january(books).await;
        books.pay_invoice(1).await;
        books.correct_event(1, 1_000_000, 0).await;
        close_february(books).await;
    });
}

#[on_each_database]
fn cheap_late_usage_before_expensive_usage(database: Database) {
    tiered(database, "cheap_late_usage_before_dear_usage", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-raised", 2_000_000, 0).await;
        close_january(books).await;
        books.use_at("2026-01-05T10:00:00Z", "chat-raised", 1_000_000, 0).await;
        close_february(books).await;
    });
}
