//! Refunds and expiring credits. Nothing is refunded twice, and expired credit isn't restored.

use super::golden::golden_with_settings;
use support::transcript::Books;
use support::{Database, on_each_database};

const PLAIN: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/one_a_million.toml");
const TIERED: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/half_price.toml");
const PREPAID: (&str, &str) = ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0");
const JANUARY: &str = "2026-01-15T09:00:00Z";

async fn close_january(books: &mut Books<'_>) {
    books.set_time("2026-02-02T00:00:00Z");
    books.run_scheduler().await;
    books.set_time("2026-02-03T09:00:00Z");
}

#[on_each_database]
fn void_invoice_and_its_corrections(database: Database) {
    golden_with_settings(database, &[PLAIN], "a_void_invoice_and_its_corrections", JANUARY, async |books| {
        books.buy_credit("100", "payment 1").await;
        for _ in 0..10 {
            books.use_today("chat-m", 10_000_000, 0).await;
        }
        books.write_balance().await;
        close_january(books).await;
        books.void_invoice(1).await;
        books.write_balance().await;
        for event in 1..=10 {
            books.correct_event(event, 10_000_000, 0).await;
        }
        books.write_balance().await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
    });
}

#[on_each_database]
fn corrections_of_an_invoice_that_was_given_up(database: Database) {
    golden_with_settings(
        database,
        &[PLAIN],
        "a_given_up_invoice_and_its_corrections",
        JANUARY,
        async |books| {
            books.use_today("chat-m", 10_000_000, 0).await;
            close_january(books).await;
            books.correct_event(1, 3_000_000, 0).await;
            books.buy_credit("5", "a part").await;
            books.give_up_invoice(1).await;
            books.write_balance().await;
            books.correct_event(1, 4_000_000, 0).await;
            books.write_balance().await;
            books.correct_event(1, 1_000_000, 0).await;
            books.write_balance().await;
            books.set_time("2026-03-02T00:00:00Z");
            books.run_scheduler().await;
        },
    );
}

#[on_each_database]
fn correction_of_what_was_given_up_refunds_nothing(database: Database) {
    golden_with_settings(database, &[PLAIN], "corrected_below_what_was_given_up", JANUARY, async |books| {
        books.use_today("chat-m", 10_000_000, 0).await;
        close_january(books).await;
        books.buy_credit("4", "a part").await;
        books.give_up_invoice(1).await;
        books.write_balance().await;
        // Each correction is less than the amount given up, so nothing is refunded.
        books.correct_event(1, 2_000_000, 0).await;
        books.correct_event(1, 3_000_000, 0).await;
        books.write_balance().await;
        // 1 of the amount that was given up is left, so 2 of these 3 are refunded.
        books.correct_event(1, 3_000_000, 0).await;
        books.write_balance().await;
    });
}

#[on_each_database]
fn correction_and_late_usage(database: Database) {
    golden_with_settings(database, &[PLAIN], "corrected_and_used_late", JANUARY, async |books| {
        books.use_today("chat-m", 10_000_000, 0).await;
        close_january(books).await;
        books.correct_event(1, 5_000_000, 0).await;
        books.use_at(JANUARY, "chat-m", 5_000_000, 0).await;
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.pay_invoice(1).await;
        books.write_balance().await;
        books.set_time("2026-06-02T00:00:00Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.pay_invoice(2).await;
    });
}

#[on_each_database]
fn correction_and_late_usage_with_own_usage(database: Database) {
    golden_with_settings(
        database,
        &[PLAIN],
        "corrected_and_used_late_beside_own_usage",
        JANUARY,
        async |books| {
            books.use_today("chat-m", 10_000_000, 0).await;
            close_january(books).await;
            books.correct_event(1, 5_000_000, 0).await;
            books.use_at(JANUARY, "chat-m", 5_000_000, 0).await;
            books.use_today("chat-m", 6_000_000, 0).await;
            books.set_time("2026-03-02T00:00:00Z");
            books.run_scheduler().await;
            books.write_balance().await;
            books.void_invoice(2).await;
            books.write_balance().await;
            books.pay_invoice(1).await;
        },
    );
}

#[on_each_database]
fn expired_credit_is_not_spent(database: Database) {
    golden_with_settings(
        database,
        &[PLAIN, PREPAID],
        "a_credit_that_is_over_is_not_spent",
        JANUARY,
        async |books| {
            books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
            books.set_time("2026-01-19T23:59:59Z");
            books.authorize_call("embed-m", 6_000_000).await;
            books.set_time("2026-01-20T00:00:00Z");
            // The scheduler hasn't run since the credit expired.
            books.authorize_call("embed-m", 4_000_000).await;
            books.write_balance().await;
        },
    );
}

#[on_each_database]
fn credit_expires_during_a_call(database: Database) {
    golden_with_settings(database, &[PLAIN, PREPAID], "a_credit_ends_under_a_call", JANUARY, async |books| {
        books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.set_time("2026-01-19T23:59:58Z");
        books.authorize_call("embed-m", 4_000_000).await;
        books.set_time("2026-01-20T00:00:01Z");
        books.run_scheduler().await;
        books.write_balance().await;
        books.set_time("2026-01-20T00:00:05Z");
        books.capture_call("embed-m", 3_000_000).await;
        books.write_balance().await;
        close_january(books).await;
    });
}

#[on_each_database]
fn refund_to_a_grant_expires_with_it(database: Database) {
    golden_with_settings(
        database,
        &[PLAIN],
        "what_is_given_back_to_a_grant_ends_with_it",
        JANUARY,
        async |books| {
            books.grant_credit("5", "welcome", "2026-02-10T00:00:00Z").await;
            books.use_today("chat-m", 3_000_000, 0).await;
            close_january(books).await;
            books.correct_event(1, 1_000_000, 0).await;
            books.write_balance().await;
            books.set_time("2026-02-10T00:00:00Z");
            books.run_scheduler().await;
            books.write_balance().await;
            books.correct_event(1, 1_000_000, 0).await;
            books.write_balance().await;
            books.void_invoice(1).await;
        },
    );
}

#[on_each_database]
fn discount_on_usage_paid_by_a_grant_expires_with_it(database: Database) {
    golden_with_settings(
        database,
        &[TIERED],
        "a_discount_on_what_a_grant_paid_ends_with_it",
        JANUARY,
        async |books| {
            books.grant_credit("5", "welcome", "2026-01-20T00:00:00Z").await;
            books.use_today("chat-m", 2_000_000, 0).await;
            books.set_time("2026-01-20T00:00:00Z");
            books.run_scheduler().await;
            books.write_balance().await;
            close_january(books).await;
        },
    );
}

#[on_each_database]
fn correction_before_the_previous_month_is_closed(database: Database) {
    golden_with_settings(
        database,
        &[PLAIN],
        "corrected_before_the_month_before_is_closed",
        JANUARY,
        async |books| {
            books.use_today("chat-m", 2_000_000, 0).await;
            books.set_time("2026-02-01T10:00:00Z");
            books.use_today("chat-m", 3_000_000, 0).await;
            books.correct_event(2, 2_000_000, 0).await;
            books.write_balance().await;
            close_january(books).await;
            books.set_time("2026-03-02T00:00:00Z");
            books.run_scheduler().await;
        },
    );
}
