//! The recount, an audit that computes everything independently. It finds faults that are consistent within
//! the books; each is planted by hand into a history without faults. The sums are calculated by hand:
//! `chat-idr` costs 0.16 per prompt token, `chat-a` 0.0000025, and 5% less above 1,000,000 tokens.

use std::collections::BTreeSet;

use serde_json::json;
use tollkeeper::billing::{audit, wallets};
use tollkeeper::db::{Db, sql};
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use super::faults::{BROUGHT_FORWARD, FAULTS, FIRST_LIMIT, Fault, WRITE_OFF};
use super::{drop_triggers, run};
use support::shop::{Shop, with_shop};
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

/// The tables that faults change. A table comes before the tables that it refers to.
const TABLES: &[&str] = &[
    "payment_statements",
    "payment_refunds",
    "payment_disputes",
    "auto_top_ups",
    "payments",
    "credit_uses",
    "credit_note_items",
    "credit_notes",
    "credited_usage",
    "invoice_items",
    "invoices",
    "credits",
    "ledger_entries",
    "ledger_transactions",
    "usage_events",
    "usage_daily_parts",
    "usage_daily",
    "usage_daily_sums",
    "usage_totals",
    "wallets",
    "audit_log",
    "price_versions",
    "conditional_prices",
];

/// The books of an organization, and a copy of them, so that they can be broken and repaired.
pub struct Bench<'a> {
    db: &'a Db,
    books: &'a Books<'a>,
}

impl<'a> Bench<'a> {
    pub async fn new(books: &'a Books<'a>) -> Self {
        let db = &books.world.app.db;
        drop_triggers(db).await;
        let mut tx = db.write().await.unwrap();
        for table in TABLES {
            let copy = format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}");
            sql(copy).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let bench = Self { db, books };
        assert_eq!(bench.found().await, [""; 0], "before any fault");
        bench
    }

    /// Returns the findings of the complete audit.
    async fn found(&self) -> Vec<String> {
        let report = audit::check(&self.books.world.app.billing, None).await.unwrap();
        report.drifts.iter().map(ToString::to_string).collect()
    }

    async fn repair(&self) {
        let mut tx = self.db.write().await.unwrap();
        for table in TABLES {
            sql(format!("DELETE FROM {table}")).execute(&mut tx).await.unwrap();
        }
        for table in TABLES.iter().rev() {
            let copy = format!("INSERT INTO {table} SELECT * FROM kept_{table}");
            sql(copy).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// Plants a fault. Returns a message if the audit doesn't find it.
    async fn missed(&self, fault: &Fault) -> Option<String> {
        run(self.db, &self.books.place.organization, fault.statements).await;
        let found = self.found().await;
        let by_sums = found.iter().filter(|line| !line.contains("  recount_"));
        let by_sums: BTreeSet<_> = by_sums.filter_map(|line| line.split("  ").nth(1)).collect();
        println!("{}: the sums of the books find {by_sums:?}", fault.name);
        let is_found = |code: &&str| found.iter().any(|line| line.contains(&format!("  {code}  ")));
        let missed: Vec<_> = fault.found_by.iter().filter(|code| !is_found(code)).collect();
        self.repair().await;
        (!missed.is_empty()).then(|| format!("{}: {missed:?} aren't among {found:#?}", fault.name))
    }

    pub async fn find_all(&self, faults: &[Fault]) {
        let mut missed = Vec::new();
        for fault in faults {
            missed.extend(self.missed(fault).await);
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
        assert_eq!(self.found().await, [""; 0], "after all repairs");
    }
}

/// Creates two closed months and an open one, with a grant, payments, an automatic top-up, a discount, a
/// credit note, a refund, and a dispute of which a part is returned.
async fn history(shop: &mut Shop<'_>) {
    shop.books.grant_credit("5", "welcome", "2027-01-01T00:00:00Z").await;
    shop.buy("20", true).await;
    shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
    // 5 + 20 - 125 x 0.16 = 5, so 45 are charged.
    shop.books.use_today("chat-idr", 125, 0).await;
    shop.work().await;
    shop.hear().await;
    assert_eq!(shop.balance().await, "50");
    // The usage costs 5, less 5% of the second million: 0.125.
    shop.books.use_today("chat-a", 2_000_000, 0).await;
    shop.books.set_time("2026-04-02T09:00:00Z");
    shop.books.run_scheduler().await;
    // 25 x 0.16 = 4 are refunded.
    shop.books.correct_event(1, 25, 0).await;
    let id = shop.buy("100", false).await;
    let intent_id = shop.row(&id).await.intent_id.unwrap();
    shop.stripe.refund_by_hand(&intent_id, 4_000);
    shop.hear().await;
    let dispute_id = shop.stripe.dispute(&intent_id, 10_000);
    shop.hear().await;
    shop.stripe.move_disputed(&dispute_id, 4_000, "usd");
    shop.stripe.close_dispute(&dispute_id, false);
    shop.hear().await;
    // 50 - 4.875 + 4 + 100 - 40 - 60.
    assert_eq!(shop.balance().await, "49.125");
    set_limit(&shop.books, "50").await;
    shop.books.use_today("chat-idr", 50, 0).await;
    shop.books.set_time("2026-05-02T09:00:00Z");
    shop.books.run_scheduler().await;
    shop.books.use_today("chat-idr", 10, 0).await;
    shop.books.use_today("chat-a", 1_000, 0).await;
    // 49.125 - 8 - 1.6 - 0.0025.
    assert_eq!(shop.balance().await, "39.5225");
    shop.books.set_time("2026-05-02T12:00:00Z");
}

async fn set_limit(books: &Books<'_>, amount: &str) {
    let (billing, amount) = (&books.world.app.billing, Nano::parse(amount).unwrap());
    wallets::set_credit_limit(billing, books.organization_id(), amount, &Trail::operator()).await.unwrap();
}

#[on_each_database]
fn planted_faults_are_found(database: Database) {
    with_shop(database, async |shop| {
        history(shop).await;
        Bench::new(&shop.books).await.find_all(FAULTS).await;
    });
}

#[on_each_database]
fn debt_that_is_brought_forward_twice_is_found(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("20", false).await;
        shop.books.use_today("chat-idr", 125, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        for next in ["2026-05-02T09:00:00Z", "2026-06-02T09:00:00Z"] {
            shop.books.use_today("chat-idr", 25, 0).await;
            shop.books.set_time(next);
            shop.books.run_scheduler().await;
        }
        // The second invoice includes 20 of debt brought forward: 4 + 20. The third doesn't: 4.
        let due: Vec<_> = shop.books.invoices().await.iter().map(|invoice| invoice.due.to_string()).collect();
        assert_eq!(due, ["0", "24", "4"]);
        Bench::new(&shop.books).await.find_all(BROUGHT_FORWARD).await;
    });
}

#[on_each_database]
fn correction_that_refunds_what_was_given_up_is_found(database: Database) {
    with_books(database, "2026-03-10T12:00:00Z", async |books| {
        set_limit(books, "100").await;
        books.use_today("chat-idr", 100, 0).await;
        books.set_time("2026-04-02T09:00:00Z");
        books.run_scheduler().await;
        // 16 - 4 - 6 paid: 6 are given up.
        books.correct_event(1, 25, 0).await;
        books.buy_credit("6", "transfer 1").await;
        books.set_time("2026-04-03T09:00:00Z");
        books.give_up_invoice(1).await;
        books.set_time("2026-04-04T09:00:00Z");
        // 8 more are corrected, so the month costs 4, and 2 of the 6 paid are refunded.
        books.correct_event(1, 50, 0).await;
        Bench::new(books).await.find_all(WRITE_OFF).await;
    });
}

/// The initial credit limit is recorded too, although no one has set it.
#[on_each_database]
fn first_credit_limit_that_was_changed_by_hand_is_found(database: Database) {
    with_books(database, "2026-03-10T12:00:00Z", async |books| {
        Bench::new(books).await.find_all(FIRST_LIMIT).await;
    });
}

/// The recount reads the database independently: it shares only arithmetic and the format of findings with
/// the books.
#[test]
fn recount_shares_nothing_with_the_books() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/billing/src");
    let mut files = vec![folder.join("recount.rs")];
    for folder in [folder.join("recount"), folder.join("recount/evidence")] {
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.is_file());
    assert!(files.len() > 11, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let is_own = !line.contains("crate::")
                || line.contains("crate::rules::audit::{Drift, Invariant}")
                || line.contains("crate::recount::");
            let is_of_others = ["super::super::super", "catalog::", "tenants::", "accounts::"];
            let is_own = is_own && !is_of_others.iter().any(|other| line.contains(other));
            assert!(is_own, "{}: {line}", file.display());
        }
    }
}
