//! Money that is given back, and credits that end: nothing comes back twice, and what ended stays over.

use super::books::Books;
use super::golden::golden_set;

const PLAIN: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/it/billing/one_a_million.toml");
const TIERED: (&str, &str) = ("TOLLKEEPER_CATALOG_FILE", "tests/it/billing/half_price.toml");
const PREPAID: (&str, &str) = ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0");
const JANUARY: &str = "2026-01-15T09:00:00Z";

async fn january_ends(books: &mut Books<'_>) {
    books.at("2026-02-02T00:00:00Z");
    books.schedule().await;
    books.at("2026-02-03T09:00:00Z");
}

#[test]
fn a_void_invoice_and_its_corrections() {
    golden_set(&[PLAIN], "a_void_invoice_and_its_corrections", JANUARY, async |books| {
        books.buys("100", "payment 1").await;
        for _ in 0..10 {
            books.used("chat-m", 10_000_000, 0).await;
        }
        books.stand().await;
        january_ends(books).await;
        books.voids(1).await;
        books.stand().await;
        for event in 1..=10 {
            books.corrects(event, 10_000_000, 0).await;
        }
        books.stand().await;
        books.at("2026-03-02T00:00:00Z");
        books.schedule().await;
    });
}

#[test]
fn corrected_and_used_late() {
    golden_set(&[PLAIN], "corrected_and_used_late", JANUARY, async |books| {
        books.used("chat-m", 10_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 5_000_000, 0).await;
        books.used_at(JANUARY, "chat-m", 5_000_000, 0).await;
        books.at("2026-03-02T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.pays(1).await;
        books.stand().await;
        books.at("2026-06-02T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.pays(2).await;
    });
}

#[test]
fn corrected_and_used_late_beside_own_usage() {
    golden_set(&[PLAIN], "corrected_and_used_late_beside_own_usage", JANUARY, async |books| {
        books.used("chat-m", 10_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 5_000_000, 0).await;
        books.used_at(JANUARY, "chat-m", 5_000_000, 0).await;
        books.used("chat-m", 6_000_000, 0).await;
        books.at("2026-03-02T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.voids(2).await;
        books.stand().await;
        books.pays(1).await;
    });
}

#[test]
fn a_credit_that_is_over_is_not_spent() {
    golden_set(&[PLAIN, PREPAID], "a_credit_that_is_over_is_not_spent", JANUARY, async |books| {
        books.is_given("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.at("2026-01-19T23:59:59Z");
        books.asks("embed-m", 6_000_000).await;
        books.at("2026-01-20T00:00:00Z");
        // The scheduler hasn't been there.
        books.asks("embed-m", 4_000_000).await;
        books.stand().await;
    });
}

#[test]
fn a_credit_ends_under_a_call() {
    golden_set(&[PLAIN, PREPAID], "a_credit_ends_under_a_call", JANUARY, async |books| {
        books.is_given("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.at("2026-01-19T23:59:58Z");
        books.asks("embed-m", 4_000_000).await;
        books.at("2026-01-20T00:00:01Z");
        books.schedule().await;
        books.stand().await;
        books.at("2026-01-20T00:00:05Z");
        books.captures("embed-m", 3_000_000).await;
        books.stand().await;
        january_ends(books).await;
    });
}

#[test]
fn what_is_given_back_to_a_grant_ends_with_it() {
    golden_set(&[PLAIN], "what_is_given_back_to_a_grant_ends_with_it", JANUARY, async |books| {
        books.is_given("5", "welcome", "2026-02-10T00:00:00Z").await;
        books.used("chat-m", 3_000_000, 0).await;
        january_ends(books).await;
        books.corrects(1, 1_000_000, 0).await;
        books.stand().await;
        books.at("2026-02-10T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        books.corrects(1, 1_000_000, 0).await;
        books.stand().await;
        books.voids(1).await;
    });
}

#[test]
fn a_discount_on_what_a_grant_paid_ends_with_it() {
    golden_set(&[TIERED], "a_discount_on_what_a_grant_paid_ends_with_it", JANUARY, async |books| {
        books.is_given("5", "welcome", "2026-01-20T00:00:00Z").await;
        books.used("chat-m", 2_000_000, 0).await;
        books.at("2026-01-20T00:00:00Z");
        books.schedule().await;
        books.stand().await;
        january_ends(books).await;
    });
}

#[test]
fn corrected_before_the_month_before_is_closed() {
    golden_set(&[PLAIN], "corrected_before_the_month_before_is_closed", JANUARY, async |books| {
        books.used("chat-m", 2_000_000, 0).await;
        books.at("2026-02-01T10:00:00Z");
        books.used("chat-m", 3_000_000, 0).await;
        books.corrects(2, 2_000_000, 0).await;
        books.stand().await;
        january_ends(books).await;
        books.at("2026-03-02T00:00:00Z");
        books.schedule().await;
    });
}
