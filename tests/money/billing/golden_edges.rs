//! More hand-checked months in the same format: a price change close to the edge of a tier, the end of the
//! year, expiring credits, other currencies, corrections, and invoices of zero.

use super::golden::{golden, golden_in};
use support::transcript::Books;
use support::{Database, on_each_database};

/// Uses `first` tokens at the old price, and the rest of 10,000,001 at the new one. The discount begins above
/// the first million.
fn price_change_near_the_tier(database: Database, name: &str, first: i64) {
    golden(database, name, "2026-01-09T09:00:00Z", async |books| {
        books.set_time("2026-01-13T09:00:00Z");
        books.use_at("2026-01-10T00:00:00.000Z", "chat-a", 400_000, 10).await;
        books.use_at("2026-01-09T23:59:59.999Z", "chat-a", first, 0).await;
        books.use_at("2026-01-11T12:00:00Z", "chat-a", 9_600_000 - first, 0).await;
        books.use_at("2026-01-12T12:00:00Z", "chat-a", 1, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn price_changes_at_the_tier(database: Database) {
    price_change_near_the_tier(database, "a_price_changes_at_a_tier_s_edge", 1_000_000);
}

#[on_each_database]
fn price_changes_one_token_past_the_tier(database: Database) {
    price_change_near_the_tier(database, "a_price_changes_a_token_past_a_tier_s_edge", 1_000_001);
}

#[on_each_database]
fn late_usage_across_the_end_of_the_year(database: Database) {
    golden(database, "late_usage_across_the_year_s_end", "2026-12-15T09:00:00Z", async |books| {
        books.set_time("2026-12-31T10:00:00Z");
        books.use_today("chat-a", 1_000, 0).await;
        // The usage is reported on the day of grace.
        books.set_time("2027-01-01T12:00:00Z");
        books.use_at("2026-12-31T23:59:59.999Z", "chat-a", 2_000, 0).await;
        books.use_at("2027-01-01T00:00:00.000Z", "chat-a", 4_000, 0).await;
        books.set_time("2027-01-02T00:00:00Z");
        books.run_scheduler().await;
        // The usage is reported after the day of grace. At these times it was already the new year in Berlin,
        // but not yet in New York.
        books.use_at("2027-01-01T00:30:00+01:00", "chat-a", 8_000, 0).await;
        books.use_at("2026-12-31T20:00:00-05:00", "chat-a", 16_000, 0).await;
        books.set_time("2027-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn credit_expires_and_leaves_a_debt(database: Database) {
    golden(database, "a_credit_that_ends_and_leaves_a_debt", "2026-01-01T09:00:00Z", async |books| {
        books.grant_credit("1", "spring", "2026-02-10T00:00:00Z").await;
        books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.buy_credit("0.5", "payment 1").await;
        books.set_time("2026-01-12T10:00:00Z");
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-01-20T00:00:00Z");
        books.use_today("chat-a", 0, 100_000).await;
        books.run_scheduler().await;
        books.write_balance().await;
        books.set_time("2026-01-25T10:00:00Z");
        books.use_today("chat-a", 0, 400_000).await;
        books.write_balance().await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.set_time("2026-02-05T10:00:00Z");
        books.buy_credit("2", "payment 2").await;
    });
}

/// Checks that amounts are counted in billionths in every currency, and that payments are rounded to its
/// minor unit.
async fn in_another_currency(books: &mut Books<'_>, too_fine: &str, paid: &str) {
    books.use_today("chat-a", 1_234_567, 56).await;
    books.set_time("2026-02-02T00:00:00Z");
    books.run_scheduler().await;
    books.write_balance().await;
    let refused = books.add(&books.new_credit(too_fine, "payment 1")).await.unwrap_err().to_string();
    assert!(refused.contains("is too precise"), "{refused}");
    books.buy_credit(paid, "payment 1").await;
}

#[on_each_database]
fn currency_without_a_minor_unit(database: Database) {
    golden_in(database, "JPY", "a_currency_without_a_minor_unit", "2026-01-15T09:00:00Z", async |books| {
        in_another_currency(books, "3.1", "4").await;
    });
}

#[on_each_database]
fn currency_with_three_decimals(database: Database) {
    golden_in(database, "KWD", "a_currency_with_three_decimals", "2026-01-15T09:00:00Z", async |books| {
        in_another_currency(books, "3.0575", "3.058").await;
    });
}

/// The usage of one key and model on a single day exceeds 64 bits of the smallest unit.
#[on_each_database]
fn currency_of_small_units(database: Database) {
    golden_in(database, "IDR", "a_currency_of_small_units", "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-idr", 4_096, 4_096).await;
        books.write_balance().await;
        for _ in 0..12 {
            books.use_today("chat-idr", 0, 2_000_000).await;
        }
        books.write_balance().await;
        books.correct_event(2, 0, 500_000).await;
        books.write_balance().await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn correction_after_the_close(database: Database) {
    golden(database, "a_correction_after_the_close", "2026-01-15T09:00:00Z", async |books| {
        books.use_today("chat-a", 1_200_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.set_time("2026-02-03T09:00:00Z");
        books.correct_event(1, 400_000, 0).await;
        books.write_balance().await;
        books.set_time("2026-02-10T09:00:00Z");
        books.use_today("chat-a", 0, 500_000).await;
        books.write_balance().await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.buy_credit("1.98", "payment 1").await;
        books.write_balance().await;
        books.pay_invoice(2).await;
    });
}

#[on_each_database]
fn corrections_exceed_usage(database: Database) {
    golden(database, "more_is_corrected_than_is_used", "2026-01-15T09:00:00Z", async |books| {
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.correct_event(1, 0, 400_000).await;
        books.use_today("chat-a", 0, 100_000).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.use_today("chat-a", 0, 2_000_000).await;
        books.set_time("2026-04-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn invoice_of_zero(database: Database) {
    golden(database, "an_invoice_of_nothing", "2026-01-15T09:00:00Z", async |books| {
        // Usage that costs nothing is still listed.
        books.use_today("free-f", 1_000, 500).await;
        books.set_time("2026-02-15T09:00:00Z");
        // The usage costs less than the smallest amount that can be charged.
        books.use_today("embed-e", 1, 0).await;
        books.set_time("2026-03-15T09:00:00Z");
        // The usage is corrected while the month is open, so none is left.
        books.use_today("chat-a", 1_000, 0).await;
        books.correct_event(3, 1_000, 0).await;
        books.set_time("2026-04-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn discount_of_less_than_a_nano(database: Database) {
    golden(database, "a_discount_of_less_than_a_nano", "2026-01-15T09:00:00Z", async |books| {
        books.use_today("embed-e", 1_000_001, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
    });
}
