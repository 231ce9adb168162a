//! Money that is refunded after it was used is owed again, but isn't charged again. The documents of all
//! months, and the exported charges, add up to the usage. All sums are calculated by hand: `chat-idr` costs
//! 0.16 per prompt token, `chat-a` 0.0000025.

use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::invoice_changes;
use tollkeeper::money::Pico;
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::{Database, csv, on_each_database};

/// Uses 125 x 0.16 = 20.
async fn use_twenty(shop: &mut Shop<'_>) {
    shop.books.use_today("chat-idr", 125, 0).await;
}

/// Uses 25 x 0.16 + 400,000 x 0.0000025 = 5.
async fn use_five(shop: &mut Shop<'_>) {
    shop.books.use_today("chat-idr", 25, 0).await;
    shop.books.use_today("chat-a", 400_000, 0).await;
}

async fn close(shop: &mut Shop<'_>, next_month: &str) {
    shop.books.set_time(&format!("2026-{next_month}-02T09:00:00Z"));
    shop.books.run_scheduler().await;
}

/// Returns the amount, balance brought forward, amount due and status of each invoice, oldest first.
async fn invoices(shop: &Shop<'_>) -> Vec<String> {
    let answer = shop.world().get(&shop.path("invoices")).bearer(&shop.token().await).data().await;
    let line = |it: &Value| {
        format!(
            "{} + {} = {} {}",
            it["amount"],
            it["balance_brought_forward"],
            it["amount_due"],
            it["status"].as_str().unwrap()
        )
    };
    let mut lines: Vec<_> = answer["invoices"].as_array().unwrap().iter().map(line).collect();
    lines.reverse();
    lines
}

/// Returns the month's charges so far, and the status that shows whether an invoice is past due.
async fn summary(shop: &Shop<'_>) -> (Value, Value) {
    let summary = shop.world().get(&shop.path("summary")).bearer(&shop.token().await).data().await;
    (summary["current_period"]["total_amount"].clone(), summary["subscription"]["status"].clone())
}

/// Returns the sum of the exported charges from March to July.
async fn charges(shop: &Shop<'_>) -> String {
    let mut sum = 0;
    for month in ["03", "04", "05", "06", "07"] {
        let path = shop.path(&format!("export?format=focus&month=2026-{month}"));
        let answer = shop.world().get(&path).bearer(&shop.token().await).send().await;
        for row in csv::rows(&answer.text) {
            sum += Pico::parse(&row["BilledCost"]).unwrap().units();
        }
    }
    Pico::from_units(sum).to_string()
}

#[on_each_database]
fn refund_of_used_money_is_charged_once(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        use_twenty(shop).await;
        close(shop, "04").await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid"]);
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        use_five(shop).await;
        assert_eq!(shop.balance().await, "-25");
        // April costs 5. The 20 that were refunded aren't a charge of April.
        assert_eq!(summary(shop).await, (json!(5), json!("active")));
        close(shop, "05").await;
        assert_eq!(summary(shop).await, (json!(0), json!("past_due")));
        // The charges on all documents and in all files are 20 + 5 = 25.
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "5 + 20 = 25 open"]);
        assert_eq!(charges(shop).await, "25");
        shop.check().await;
        let invoice = shop.books.invoices().await[1].clone();
        let page =
            shop.world().get(&shop.path(&format!("invoices/{}", invoice.id))).header("accept", "text/html");
        let page = page.bearer(&shop.token().await).send().await.text;
        for line in [
            "<dt>Total</dt><dd>5.00 USD</dd>",
            "<dt>Balance brought forward</dt><dd>20.00 USD</dd>",
            "<dt>Paid</dt><dd>0.00 USD</dd>",
            "<dt>Amount due</dt><dd>25.00 USD</dd>",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        // A payment pays the complete invoice.
        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(begun["amount"], 25);
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "5 + 20 = 0 paid"]);
        close(shop, "06").await;
        assert_eq!((shop.balance().await.as_str(), invoices(shop).await.len()), ("0", 2));
        assert_eq!(charges(shop).await, "25");
    });
}

#[on_each_database]
fn won_dispute_of_a_paid_invoice_leaves_one_charge(database: Database) {
    with_shop(database, async |shop| {
        use_twenty(shop).await;
        close(shop, "04").await;
        let invoice = shop.books.invoices().await[0].clone();
        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid"]);
        let dispute_id = shop.stripe.dispute(&shop.row(&begun["id"]).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        close(shop, "05").await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "0 + 20 = 20 open"]);
        assert_eq!(charges(shop).await, "20");
        shop.check().await;
        shop.stripe.close_dispute(&dispute_id, true);
        shop.hear().await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "0 + 20 = 0 paid"]);
        assert_eq!((shop.balance().await.as_str(), charges(shop).await.as_str()), ("0", "20"));
    });
}

#[on_each_database]
fn paid_back_before_the_close_is_on_no_document(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        use_twenty(shop).await;
        close(shop, "04").await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        shop.buy("30", false).await;
        use_five(shop).await;
        close(shop, "05").await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "5 + 0 = 0 paid"]);
        // 20 - 20 - 20 + 30 - 5.
        assert_eq!((shop.balance().await.as_str(), charges(shop).await.as_str()), ("5", "25"));
    });
}

#[on_each_database]
fn void_invoice_leaves_the_balance_that_was_brought_forward(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        use_twenty(shop).await;
        close(shop, "04").await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        use_five(shop).await;
        close(shop, "05").await;
        // 3 of the 25 are paid.
        shop.buy_elsewhere("3", "a part").await;
        assert_eq!(invoices(shop).await[1], "5 + 20 = 22 open");
        shop.books.void_invoice(2).await;
        // The usage of the void invoice is no longer owed: -22 + 5.
        assert_eq!(shop.balance().await, "-17");
        shop.check().await;
        close(shop, "06").await;
        assert_eq!(invoices(shop).await, ["20 + 0 = 0 paid", "5 + 20 = 0 void", "0 + 17 = 17 open"]);
        // 20 + 5 - 5.
        assert_eq!(charges(shop).await, "20");
        shop.check().await;
        // An invoice that was given up is no longer owed, but its usage was charged.
        let third = shop.books.invoices().await[2].id;
        invoice_changes::give_up(&shop.world().app.billing, third, &Trail::operator()).await.unwrap();
        assert_eq!((shop.balance().await.as_str(), charges(shop).await.as_str()), ("0", "20"));
    });
}

#[on_each_database]
fn correction_lowers_what_was_given_up_with_the_balance_brought_forward(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        use_twenty(shop).await;
        close(shop, "04").await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        use_five(shop).await;
        close(shop, "05").await;
        // 3 of the 25 are paid, and 22 are given up.
        shop.buy_elsewhere("3", "a part").await;
        shop.books.set_time("2026-05-03T09:00:00Z");
        shop.books.give_up_invoice(2).await;
        shop.books.set_time("2026-05-04T09:00:00Z");
        // The month costs 1 instead of 5. With the 20 from before, that is more than the 3 that were paid, so
        // nothing is refunded.
        shop.books.correct_event(2, 25, 0).await;
        assert_eq!(shop.balance().await, "0");
        shop.check().await;
    });
}

#[on_each_database]
fn correction_lowers_what_is_due_with_the_balance_brought_forward(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        use_twenty(shop).await;
        close(shop, "04").await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        use_five(shop).await;
        close(shop, "05").await;
        // The second event, 25 x 0.16 = 4, is corrected to zero.
        shop.books.correct_event(2, 25, 0).await;
        assert_eq!(invoices(shop).await[1], "5 + 20 = 21 open");
        assert_eq!((shop.balance().await.as_str(), charges(shop).await.as_str()), ("-21", "21"));
        shop.check().await;
        // The invoice is paid completely. Another correction refunds a part of it: 400,000 x 0.0000025 = 1.
        shop.buy_elsewhere("21", "all").await;
        assert_eq!(invoices(shop).await[1], "5 + 20 = 0 paid");
        shop.books.correct_event(3, 400_000, 0).await;
        assert_eq!((shop.balance().await.as_str(), charges(shop).await.as_str()), ("1", "20"));
    });
}
