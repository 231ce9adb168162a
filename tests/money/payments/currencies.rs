//! The bounds of payments in currencies other than dollars. All sums are calculated by hand.

use serde_json::json;

use support::shop::with_configured_shop;
use support::{Database, on_each_database};

#[on_each_database]
fn default_bounds_are_of_the_size_of_the_currency(database: Database) {
    let yen = [("TOLLKEEPER_BILLING__CURRENCY", "JPY")];
    with_configured_shop(database, &yen, async |shop| {
        let token = shop.token().await;
        let post = |amount: i64| {
            shop.world().post(&shop.path("payments"), &json!({"amount": amount})).bearer(&token)
        };
        // The default bounds are 5 and 10,000 dollars, which is about 500 and 1,000,000 yen.
        for amount in [499, 1_000_001] {
            let answer = post(amount).send().await;
            let message = &answer.json()["error"]["message"];
            assert_eq!(answer.status, 400);
            assert_eq!(message, "`amount` must be at least 500 and at most 1000000 JPY.");
        }
        shop.buy("500", false).await;
        shop.buy("1000000", false).await;
        assert_eq!(shop.balance().await, "1000500");
    });
}

#[on_each_database]
fn bounds_that_are_set_hold_in_each_currency(database: Database) {
    let yen = [("TOLLKEEPER_BILLING__CURRENCY", "JPY"), ("TOLLKEEPER_PAYMENTS__MINIMUM_AMOUNT", "1000")];
    with_configured_shop(database, &yen, async |shop| {
        let token = shop.token().await;
        let call = shop.world().post(&shop.path("payments"), &json!({"amount": 999})).bearer(&token);
        assert_eq!(call.send().await.status, 400);
        shop.buy("1000", false).await;
        assert_eq!(shop.balance().await, "1000");
    });
}
