//! Operators' work with money other than payments: listing credits and taking them back, giving up invoices,
//! and deleting organizations. Also the fields that an invoice keeps.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::{OperatorError, closing, credits, invoice_changes};
use tollkeeper::clock::{Clock, DAY_MS};
use tollkeeper::db::sql;
use tollkeeper::error::Code;
use tollkeeper::ids::CreditId;
use tollkeeper::money::Nano;
use tollkeeper::web::route::Listener;

use tollkeeper::trail::Trail;

use support::billed::fresh_token;
use support::http::{Answer, Call};
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

const JANUARY: &str = "2026-01-05T09:00:00Z";

async fn wallet(books: &Books<'_>) -> String {
    let mut tx = books.world.app.db.read().await.unwrap();
    let wallet =
        tollkeeper::billing::store::wallets::get(&mut tx, books.organization_id()).await.unwrap().unwrap();
    wallet.posted.to_string()
}

async fn credit(books: &Books<'_>, reference: &str) -> (CreditId, String) {
    let mut tx = books.world.app.db.read().await.unwrap();
    let credit =
        tollkeeper::billing::store::credits::by_reference(&mut tx, books.organization_id(), reference)
            .await
            .unwrap();
    let credit = credit.unwrap();
    (credit.id, credit.remaining.to_string())
}

async fn assert_audit_passes(books: &Books<'_>) {
    let report = audit::check(&books.world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.drifts);
}

fn words(refusal: OperatorError) -> String {
    match refusal {
        OperatorError::Invalid(words) => words,
        OperatorError::Failed(error) => panic!("{error}"),
    }
}

#[on_each_database]
fn rest_of_a_credit_is_taken_back(database: Database) {
    with_books(database, JANUARY, async |books| {
        let (app, trail) = (&books.world.app, Trail::operator());
        books.buy_credit("10", "payment 1").await;
        books.use_today("chat-a", 0, 500_000).await;
        let (id, left) = credit(books, "payment 1").await;
        assert_eq!(left, "7");
        let too_much = credits::take_back(&app.billing, id, Nano::parse("7.01"), &trail).await.unwrap_err();
        assert!(words(too_much).contains("7 USD of the credit `payment 1` remain"));
        let taken = credits::take_back(&app.billing, id, Nano::parse("2"), &trail).await.unwrap();
        assert_eq!((taken.amount.to_string(), taken.credit.remaining.to_string()), ("2".into(), "5".into()));
        assert_eq!((wallet(books).await, credit(books, "payment 1").await.1), ("5".into(), "5".into()));
        assert_audit_passes(books).await;
        let taken = credits::take_back(&app.billing, id, None, &trail).await.unwrap();
        assert_eq!((taken.amount.to_string(), wallet(books).await), ("5".into(), "0".into()));
        let nothing = credits::take_back(&app.billing, id, None, &trail).await.unwrap_err();
        assert_eq!(words(nothing), "the credit `payment 1` has no remainder");
        let unknown = CreditId::parse("credit_01h2xcejqtf2nbrexx3vqjhp41").unwrap();
        let unknown = credits::take_back(&app.billing, unknown, None, &trail).await.unwrap_err();
        assert!(words(unknown).starts_with("credit credit_01h2xcejqtf2nbrexx3vqjhp41 doesn't exist"));
        // The used part of the credit isn't taken back, so the invoice is paid.
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        assert_eq!(books.invoices().await[0].due, Nano::ZERO);
        assert_audit_passes(books).await;
    });
}

#[on_each_database]
fn reserved_credit_is_not_taken_back(database: Database) {
    with_books(database, JANUARY, async |books| {
        let (app, trail) = (&books.world.app, Trail::operator());
        books.buy_credit("10", "payment 1").await;
        let (id, _) = credit(books, "payment 1").await;
        // 5,000 x 0.0000000007 are reserved.
        books.authorize_call("embed-e", 5_000).await;
        for amount in [None, Nano::parse("9.999996501")] {
            let refused = words(credits::take_back(&app.billing, id, amount, &trail).await.unwrap_err());
            assert!(
                refused.starts_with("0.0000035 USD of the wallet are reserved for calls in progress"),
                "{refused}"
            );
        }
        assert_eq!((wallet(books).await, credit(books, "payment 1").await.1), ("10".into(), "10".into()));
        let taken = credits::take_back(&app.billing, id, Nano::parse("9.9999965"), &trail).await.unwrap();
        assert_eq!(taken.credit.remaining.to_string(), "0.0000035");
        assert_audit_passes(books).await;
        // The call ends and has used less than it reserved.
        books.capture_call("embed-e", 2_000).await;
        assert_eq!(wallet(books).await, "0.0000021");
        let taken = credits::take_back(&app.billing, id, None, &trail).await.unwrap();
        assert_eq!((taken.amount.to_string(), wallet(books).await), ("0.0000021".into(), "0".into()));
        assert_audit_passes(books).await;
    });
}

#[on_each_database]
fn uncollectible_invoice_is_not_due(database: Database) {
    with_books(database, JANUARY, async |books| {
        let (app, trail) = (&books.world.app, Trail::operator());
        books.buy_credit("1", "payment 1").await;
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let id = books.invoices().await[0].id;
        assert_eq!(
            (books.invoices().await[0].due.to_string(), wallet(books).await),
            ("2".into(), "-2".into())
        );
        let given_up = invoice_changes::give_up(&app.billing, id, &trail).await.unwrap();
        assert_eq!((given_up.invoice.status.as_str(), given_up.was_unchanged), ("uncollectible", false));
        assert_eq!(wallet(books).await, "0");
        assert!(invoice_changes::give_up(&app.billing, id, &trail).await.unwrap().was_unchanged);
        let paid = words(invoice_changes::mark_paid(&app.billing, id, None, &trail).await.unwrap_err());
        assert_eq!(paid, "invoice 1 is uncollectible and can't be paid");
        assert_audit_passes(books).await;
        // 3 were billed and 1 was paid, so a correction refunds at most 1.
        books.correct_event(1, 0, 500_000).await;
        assert_eq!((wallet(books).await, credit(books, "payment 1").await.1), ("1".into(), "1".into()));
        assert_audit_passes(books).await;
    });
}

async fn delete(books: &Books<'_>) -> Answer {
    let token = fresh_token(books.world, &books.ada).await;
    books.world.call(Method::DELETE, &books.place.organization_path()).bearer(&token).send().await
}

#[on_each_database]
fn organization_without_debt_can_be_deleted(database: Database) {
    // 1 x 0.0000025 is owed, or 0.01 less this amount is left. Both are less than a cent.
    for bought in [None, Some("0.01")] {
        with_books(database, JANUARY, async |books| {
            if let Some(amount) = bought {
                books.buy_credit(amount, "payment 1").await;
            }
            books.set_time("2026-01-15T09:00:00Z");
            books.use_today("chat-a", 1, 0).await;
            let answer = delete(books).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(wallet(books).await, "0");
            let invoice = &books.invoices().await[0];
            assert_eq!((invoice.amount.to_string().as_str(), invoice.status.as_str()), ("0.0000025", "paid"));
            assert_audit_passes(books).await;
        });
    }
}

#[on_each_database]
fn organization_with_a_cent_of_debt_or_credit_stays(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        books.buy_credit("0.02", "payment 1").await;
        books.use_today("chat-a", 4_000, 0).await;
        let answer = delete(books).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "unsettled_balance"), "0.01 is left");
        assert_eq!(books.invoices().await, []);
        books.use_today("chat-a", 8_000, 0).await;
        let answer = delete(books).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "unsettled_balance"), "0.01 is owed");
        assert_eq!((wallet(books).await.as_str(), books.invoices().await.len()), ("-0.01", 0));
        books.buy_credit("0.01", "payment 2").await;
        assert_eq!(delete(books).await.status, 200);
        assert_audit_passes(books).await;
    });
}

#[on_each_database]
fn pending_discount_is_credited_before_deletion(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        // 3,000,000 x 0.0000025 = 7.5, less 5% of the 2,000,000 above the first million: 0.25.
        books.buy_credit("7.5", "payment 1").await;
        books.use_today("chat-a", 3_000_000, 0).await;
        let answer = delete(books).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "unsettled_balance"), "0.25 come back");
        let (id, _) = credit(books, "payment 1").await;
        let nothing = credits::take_back(&books.world.app.billing, id, None, &Trail::operator()).await;
        assert!(nothing.is_err(), "the credit is returned at the end of the month");
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let taken = credits::take_back(&books.world.app.billing, id, None, &Trail::operator()).await.unwrap();
        assert_eq!(taken.amount.to_string(), "0.25");
        assert_eq!(delete(books).await.status, 200);
        assert_audit_passes(books).await;
    });
}

/// Returns a replica that uses the machine's clock, although the service has already seen a later time.
async fn replica_with_untrusted_clock(books: &Books<'_>) -> App {
    let app = App::new(books.world.app.config.clone(), Clock::System).unwrap();
    let later = app.clock.now().plus_ms(DAY_MS);
    let mut tx = app.db.write().await.unwrap();
    tollkeeper::cluster::store::service_clock::note(&mut tx, later, later).await.unwrap();
    tx.commit().await.unwrap();
    app.boot().await.unwrap();
    assert!(!app.clock_guard.is_trusted());
    app
}

#[on_each_database]
fn no_invoice_becomes_uncollectible_while_the_clock_is_untrusted(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let before = books.invoices().await;
        let app = replica_with_untrusted_clock(books).await;
        match invoice_changes::give_up(&app.billing, before[0].id, &Trail::operator()).await {
            Err(OperatorError::Failed(error)) => assert_eq!(error.code, Code::ClockNotTrusted),
            other => panic!("{other:?}"),
        }
        assert_eq!((books.invoices().await, wallet(books).await), (before, "-3".into()));
    });
}

#[on_each_database]
fn no_organization_is_deleted_while_the_clock_is_untrusted(database: Database) {
    with_books(database, JANUARY, async |books| {
        let app = replica_with_untrusted_clock(books).await;
        books.set_time(&app.clock.now().to_string());
        let token = fresh_token(books.world, &books.ada).await;
        let (entrance, path) = (
            tollkeeper::api::routes::dispatcher(&app.api, Listener::Public),
            books.place.organization_path(),
        );
        let delete = async || Call::new(&entrance, Method::DELETE, &path).bearer(&token).send().await;
        let answer = delete().await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "clock_not_trusted"), "{}", answer.text);
        assert_eq!(books.world.get(&path).bearer(&token).send().await.status, 200);
        let mut tx = app.db.write().await.unwrap();
        tollkeeper::cluster::store::service_clock::accept(&mut tx, app.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        app.clock_guard.check().await.unwrap();
        let answer = delete().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    });
}

#[on_each_database]
fn invoice_keeps_its_issuer(database: Database) {
    with_books(database, JANUARY, async |books| {
        let with_issuer = |name: &str, address: &str| {
            let mut config = books.world.app.config.clone();
            config.billing.issuer_name = Some(name.to_owned());
            config.billing.issuer_address = Some(address.to_owned());
            App::new(config, books.world.clock.clone()).unwrap()
        };
        books.use_today("chat-a", 1_000_000, 0).await;
        let first = with_issuer("First Ltd", "VAT 111");
        first.boot().await.unwrap();
        books.set_time("2026-02-02T00:00:00Z");
        let closed =
            closing::close_due(&first.billing, first.clock.now(), &Trail::system(), None).await.unwrap();
        assert_eq!(closed.closed.len(), 1);
        let second = with_issuer("Second Inc", "VAT 222");
        second.boot().await.unwrap();
        let entrance = tollkeeper::api::routes::dispatcher(&second.api, Listener::Public);
        let token = fresh_token(books.world, &books.ada).await;
        let path =
            format!("{}/billing/invoices/{}", books.place.organization_path(), books.invoices().await[0].id);
        let call = Call::new(&entrance, Method::GET, &path).bearer(&token).header("accept", "text/html");
        let page = call.send().await.text;
        assert!(page.contains("First Ltd") && page.contains("VAT 111") && !page.contains("Second"), "{page}");

        // An invoice that an earlier version issued without this field gets the issuer that is configured
        // when this version first starts.
        let mut tx = second.db.write().await.unwrap();
        let trigger =
            if second.db.is_postgres() { "invoices_no_rewrite ON invoices" } else { "invoices_no_rewrite" };
        sql(format!("DROP TRIGGER {trigger}")).execute(&mut tx).await.unwrap();
        sql("UPDATE invoices SET issuer_name = NULL, issuer_address = NULL").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        second.boot().await.unwrap();
        with_issuer("Third", "VAT 333").boot().await.unwrap();
        assert_eq!(books.invoices().await[0].issuer.name.as_deref(), Some("Second Inc"));
    });
}

#[on_each_database]
fn only_the_payment_fields_of_an_invoice_change(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 1_000_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let change = async |text: &str| {
            let mut tx = books.world.app.db.write().await.unwrap();
            let changed = sql(format!("UPDATE invoices SET {text}")).execute(&mut tx).await;
            drop(tx);
            changed
        };
        for text in [
            "number = 7",
            "organization_id = 'org_1'",
            "organization_name = 'Someone Else'",
            "month = month + 1",
            "currency = 'EUR'",
            "amount_nano = amount_nano - 1",
            "finalized_at = finalized_at + 1",
            "issuer_name = 'Second Inc'",
            "issuer_address = NULL",
        ] {
            assert!(change(text).await.is_err(), "{text}");
        }
        for text in ["due_nano = 1", "status = 'paid'", "paid_at = 1", "voided_at = 1"] {
            assert_eq!(change(text).await.unwrap(), 1, "{text}");
        }
    });
}

#[on_each_database]
fn credit_note_is_listed_and_printed_with_its_invoice(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.set_time("2026-01-15T09:00:00Z");
        books.use_today("chat-a", 1_200_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        books.correct_event(1, 400_000, 0).await;
        let token = fresh_token(books.world, &books.ada).await;
        let path = format!("{}/billing/invoices", books.place.organization_path());
        let list = books.world.get(&path).bearer(&token).send().await;
        let invoice: Value = list.json()["data"]["invoices"][0].clone();
        let note = &invoice["credit_notes"][0];
        assert_eq!((&note["number"], &note["reference"]), (&json!(1), &json!("tests/e2")));
        assert!(list.text.contains("\"amount\":0.975,"), "{}", list.text);
        assert!(
            list.text.contains(
                "\"items\":[{\"description\":\"Correction of 2026-01: chat-a, prompt tokens\",\"quantity\":-400000,\
                 \"unit_price\":0.0000025,\"amount\":-1},{\"description\":\"Volume discount of 2026-01 taken back: chat-a, prompt \
                 tokens\",\"quantity\":1,\"unit_price\":0.025,\"amount\":0.025}]"
            ),
            "{}",
            list.text
        );
        let path = format!("{path}/{}", books.invoices().await[0].id);
        let page = books.world.get(&path).bearer(&token).header("accept", "text/html").send().await.text;
        for words in [
            "Credit note 1 of <time datetime=\"2026-02-02\">2 Feb 2026</time><br><small>tests/e2</small>",
            "<td>Correction of 2026-01: chat-a, prompt tokens</td><td>-400,000</td>",
            // 2.98 - 0.97 - 0.01 = 2.00
            "<dt>Total</dt><dd title=\"2.975 USD\">2.98 USD</dd>",
            "<dt>Credit notes</dt><dd title=\"-0.975 USD\">-0.97 USD</dd>",
            "<dt>Paid</dt><dd>0.00 USD</dd>",
            "<dt>Rounding</dt><dd>-0.01 USD</dd>",
            "<dt>Amount due</dt><dd>2.00 USD</dd>",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
    });
}

/// Events of earlier versions don't have a billing month, only their daily rows and invoices do.
#[on_each_database]
fn event_of_an_earlier_version_is_credited_on_its_own_invoice(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.set_time("2026-01-15T09:00:00Z");
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // Late usage has the same key, model, price and day as the billed usage.
        books.set_time("2026-02-03T00:00:00Z");
        books.use_at("2026-01-15T09:00:00Z", "chat-a", 2_000, 0).await;
        let postgres = books.world.app.db.is_postgres();
        let trigger =
            if postgres { "usage_events_no_update ON usage_events" } else { "usage_events_no_update" };
        for text in
            [format!("DROP TRIGGER {trigger}"), "UPDATE usage_events SET billed_month = NULL".to_owned()]
        {
            let mut tx = books.world.app.db.write().await.unwrap();
            sql(text).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        }
        books.correct_event(1, 400, 0).await;
        books.correct_event(2, 500, 0).await;
        let month = books.invoices().await[0].month;
        let mut tx = books.world.app.db.read().await.unwrap();
        let notes = tollkeeper::billing::store::credit_notes::between(
            &mut tx,
            books.organization_id(),
            month,
            month.plus(9),
        )
        .await;
        let notes: Vec<_> =
            notes.unwrap().iter().map(|(note, _)| (note.month, note.amount.to_string())).collect();
        assert_eq!(notes, [(month, "0.001".to_owned())], "400 x 0.0000025");
        drop(tx);
        // 1,500 tokens of the late usage are left. They are on the next invoice.
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        assert_eq!(books.invoices().await[1].amount.to_string(), "0.00375");
        assert_audit_passes(books).await;
    });
}
