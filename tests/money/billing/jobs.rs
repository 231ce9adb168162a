//! The close and credits: with several replicas, after long pauses, and when a month can't be closed.

use futures_util::future::join_all;
use tollkeeper::billing::bookkeeping as jobs;
use tollkeeper::billing::bookkeeping::{closing, credits, invoice_changes};
use tollkeeper::clock::{MINUTE_MS, Month, Time};
use tollkeeper::cluster::leases::LEASE_MS;
use tollkeeper::db::sql;
use tollkeeper::ids::OrganizationId;
use tollkeeper::metrics::Job;
use tollkeeper::money::Nano;

use tollkeeper::trail::{Filter, Trail};

use support::billed::check;
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

const JANUARY: &str = "2026-01-15T09:00:00Z";

async fn balance(books: &Books<'_>) -> String {
    let mut tx = books.world.app.db.read().await.unwrap();
    tollkeeper::billing::store::wallets::get(&mut tx, books.organization_id())
        .await
        .unwrap()
        .unwrap()
        .posted
        .to_string()
}

/// Returns the actions and actors of the audit entries about this organization's money, oldest first.
async fn trail(books: &Books<'_>) -> Vec<String> {
    let mut tx = books.world.app.db.read().await.unwrap();
    let filter =
        Filter { organization_id: books.place.organization.clone(), limit: 1_000, ..Filter::default() };
    let mut entries = tollkeeper::trail::list(&mut tx, &filter).await.unwrap();
    entries.reverse();
    let money = entries
        .iter()
        .filter(|entry| ["credit.", "invoice."].iter().any(|prefix| entry.action.starts_with(prefix)));
    money.map(|entry| format!("{} {}", entry.actor, entry.action)).collect()
}

#[on_each_database]
fn each_month_closes_once_with_concurrent_schedulers(database: Database) {
    with_books(database, JANUARY, async |books| {
        let mut others = Vec::new();
        for name in ["Two", "Three", "Four"] {
            others.push(books.world.organization(&books.ada, name).await);
        }
        books.use_today("chat-a", 2_000_000, 0).await;
        books.set_time("2026-04-15T09:00:00Z");
        let (app, now) = (&books.world.app, books.world.clock.now());
        let trails = Trail::system();
        let closers = (0..8).map(|_| closing::close_due(&app.billing, now, &trails, None));
        let outcomes: Vec<_> = join_all(closers).await.into_iter().map(Result::unwrap).collect();
        let closed: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.closed).collect();
        // Three months of four organizations are closed: January, February and March.
        assert_eq!(closed.len(), 12);
        assert_eq!(closed.iter().filter(|closed| closed.invoice.is_some()).count(), 1);
        assert!(outcomes.iter().all(|outcome| outcome.failed.is_empty()));
        let invoices = books.invoices().await;
        assert_eq!(invoices.len(), 1);
        // 2,000,000 x 0.0000025 = 5, less 5% of 2.5: 0.125.
        assert_eq!((invoices[0].amount.to_string(), balance(books).await), ("4.875".into(), "-4.875".into()));
        for organization in &others {
            check(books.world, organization).await;
        }
        assert_eq!(trail(books).await, ["system invoice.created"]);
    });
}

#[on_each_database]
fn usage_is_on_the_closing_invoice_or_in_the_next_month(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        let (world, place, key) = (books.world, books.place.clone(), books.keys[0].clone());
        let day = tollkeeper::clock::Day::parse("2026-01-31").unwrap();
        let late = (0..10).map(|_| {
            let usage = support::billed::Usage {
                place: &place,
                key: &key,
                model: "chat-a",
                day,
                prompt: 1_000,
                completion: 0,
            };
            support::billed::charge(world, usage)
        });
        let trails = Trail::system();
        let close = closing::close_due(&world.app.billing, world.clock.now(), &trails, None);
        let (_, outcome) = futures_util::future::join(join_all(late), close).await;
        assert_eq!(outcome.unwrap().closed.len(), 1);
        books.set_time("2026-03-02T00:00:00Z");
        books.run_scheduler().await;
        let total: i128 = books.invoices().await.iter().map(|invoice| invoice.amount.units()).sum();
        // 11,000 x 0.0000025, in one of the two months.
        assert_eq!(Nano::from_units(total).to_string(), "0.0275");
        assert_eq!(balance(books).await, "-0.0275");
    });
}

#[on_each_database]
fn lease_belongs_to_one_replica_until_it_ends(database: Database) {
    with_books(database, JANUARY, async |books| {
        let app = &books.world.app;
        let (one, two) = (app.leases.lease(Job::Billing), app.leases.lease(Job::Billing));
        assert!(one.take().await.unwrap() && !two.take().await.unwrap());
        assert!(app.leases.lease(Job::Audit).take().await.unwrap());
        books.world.clock.advance_ms(LEASE_MS - 1);
        assert!(!two.take().await.unwrap(), "not before its time");
        assert!(one.take().await.unwrap(), "renewed");
        books.world.clock.advance_ms(LEASE_MS - 1);
        assert!(!two.take().await.unwrap(), "from then on");
        books.world.clock.advance_ms(1);
        assert!(two.take().await.unwrap() && !one.take().await.unwrap());
        // The replica that lost the lease does nothing, and the other one does all the work.
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        assert!(two.take().await.unwrap());
        jobs::run_due(&app.billing, &one).await.unwrap();
        assert_eq!(books.invoices().await.len(), 0);
        books.world.clock.advance_ms(MINUTE_MS);
        jobs::run_due(&app.billing, &two).await.unwrap();
        jobs::run_due(&app.billing, &two).await.unwrap();
        assert_eq!(books.invoices().await.len(), 1);
    });
}

#[on_each_database]
fn failed_close_does_not_block_other_organizations(database: Database) {
    with_books(database, JANUARY, async |books| {
        let other = books.world.organization(&books.ada, "Other").await;
        let other_id = OrganizationId::parse(&other).unwrap();
        books.use_today("chat-a", 1_000, 0).await;
        // A ledger entry with this key exists already, so the discount can't be credited.
        books.use_today("chat-a", 2_000_000, 0).await;
        let mut tx = books.world.app.db.write().await.unwrap();
        sql("INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
             VALUES ('ltx_x', $1, 'discount', 'discount:2026-01', 1)")
        .bind(books.organization_id())
        .execute(&mut tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
        books.set_time("2026-03-02T00:00:00Z");
        let (app, now, trails) = (&books.world.app, books.world.clock.now(), Trail::system());
        let outcome = closing::close_due(&app.billing, now, &trails, None).await.unwrap();
        let failed: Vec<_> =
            outcome.failed.iter().map(|failed| (failed.organization_id, failed.month.to_string())).collect();
        assert_eq!(failed, [(books.organization_id(), "2026-01".to_owned())]);
        let closed: Vec<_> =
            outcome.closed.iter().map(|closed| (closed.organization_id, closed.month.to_string())).collect();
        assert_eq!(closed, [(other_id, "2026-01".to_owned()), (other_id, "2026-02".to_owned())]);
        let mut tx = app.db.read().await.unwrap();
        let wallet = tollkeeper::billing::store::wallets::get(&mut tx, books.organization_id())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(wallet.open_month, Month::from_unix_months(672), "nothing was kept");
        let (last,): (i64,) =
            sql("SELECT last FROM sequences WHERE name = 'invoices'").one(&mut tx).await.unwrap();
        assert_eq!(last, 0, "its number was released");
    });
}

#[on_each_database]
fn deleted_organization_gets_its_last_invoice(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.buy_credit("0.01", "payment 1").await;
        books.use_today("chat-a", 4_000, 0).await;
        assert_eq!(balance(books).await, "0");
        let path = books.place.organization_path();
        let call = books.world.call(http::Method::DELETE, &path);
        call.bearer(&books.ada.access_token).data().await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let invoices = books.invoices().await;
        let last: Vec<_> = invoices
            .iter()
            .map(|i| (i.organization_name.as_str(), i.status.as_str(), i.month.to_string()))
            .collect();
        assert_eq!(last, [("Acme", "paid", "2026-01".to_owned())]);
    });
}

#[on_each_database]
fn reference_identifies_one_credit(database: Database) {
    with_books(database, JANUARY, async |books| {
        let new = books.new_credit("25", "payment 1");
        let first = books.add(&new).await.unwrap();
        let again = books.add(&new).await.unwrap();
        assert!(!first.existed && again.existed && first.credit.id == again.credit.id);
        let until = Time::parse("2027-01-01T00:00:00Z");
        for other in [
            credits::NewCredit { amount: Nano::parse("25.01").unwrap(), ..new.clone() },
            credits::NewCredit { is_grant: true, ..new.clone() },
            credits::NewCredit { expires_at: until, ..new.clone() },
        ] {
            let refusal = books.add(&other).await.unwrap_err().to_string();
            assert!(refusal.contains("another credit") && refusal.contains("purchase of 25;"), "{refusal}");
        }
        let many = (0..8).map(|_| books.new_credit("3", "payment 2")).collect::<Vec<_>>();
        let many = join_all(many.iter().map(|new| books.add(new))).await;
        assert_eq!(many.iter().filter(|added| !added.as_ref().unwrap().existed).count(), 1);
        assert_eq!(balance(books).await, "28");
        // A credit with an expiry is still found by its reference after it has expired.
        let soon = credits::NewCredit {
            expires_at: Time::parse("2026-01-16T00:00:00Z"),
            ..books.new_credit("1", "p")
        };
        assert!(!books.add(&soon).await.unwrap().existed);
        books.set_time("2026-01-17T00:00:00Z");
        books.run_scheduler().await;
        assert!(books.add(&soon).await.unwrap().existed);
        assert_eq!(balance(books).await, "28");
        let entries = ["operator credit.added"; 3].into_iter().chain(["system credit.expired"]);
        assert_eq!(trail(books).await, entries.collect::<Vec<_>>());
    });
}

#[on_each_database]
fn invalid_credits_are_refused(database: Database) {
    with_books(database, JANUARY, async |books| {
        let new = |amount: &str, reference: &str| books.new_credit(amount, reference);
        let unknown = OrganizationId::parse("org_01h2xcejqtf2nbrexx3vqjhp41").unwrap();
        let past = Time::parse("2026-01-15T09:00:00Z");
        let cases = [
            (new("0", "x"), "more than 0"),
            (new("-5", "x"), "more than 0"),
            (new("5.001", "x"), "too precise: the smallest unit of USD is 0.01"),
            (new("9223372036.86", "x"), "too large"),
            (new("5", ""), "1 to 200 characters"),
            (new("5", &"x".repeat(201)), "1 to 200 characters"),
            (new("5", "a\nb"), "one line"),
            (new("5", "discount:2026-01"), "can't start with `discount:`"),
            (credits::NewCredit { expires_at: past, ..new("5", "x") }, "must be in the future"),
            (credits::NewCredit { organization_id: unknown, ..new("5", "x") }, "organization org_01h2x"),
        ];
        for (new, words) in cases {
            let refusal = books.add(&new).await.unwrap_err().to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
        assert_eq!(balance(books).await, "0");
        assert!(!books.add(&new("9223372036.85", "x")).await.unwrap().existed);
        let refusal = books.add(&new("0.01", "y")).await.unwrap_err().to_string();
        assert!(refusal.contains("the maximum balance of a wallet is"), "{refusal}");
    });
}

/// 493,827 prompt tokens at 0.0000025 are 1.2345675, which can't be paid exactly. The page shows 1.24, and
/// 1.24 is booked.
#[on_each_database]
fn booked_payment_equals_the_printed_amount(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 493_827, 0).await;
        books.set_time("2026-02-15T09:00:00Z");
        books.run_scheduler().await;
        let invoice = books.invoices().await.remove(0);
        assert_eq!(
            (invoice.due.to_string(), balance(books).await),
            ("1.2345675".to_owned(), "-1.2345675".to_owned())
        );
        let (app, trail) = (&books.world.app, Trail::operator());
        let amount = |text: &str| Some(Nano::parse(text).unwrap());
        for (wrong, words) in [
            ("1.235", "--amount 1.235 is too precise: the smallest unit of USD is 0.01"),
            ("1.23", "--amount 1.23 is less than the 1.2345675 USD due on invoice 1"),
            ("-1.24", "--amount -1.24 is less than"),
            ("0", "--amount 0 is less than"),
            ("9223372036.86", "the maximum balance of a wallet is"),
        ] {
            let refusal = invoice_changes::mark_paid(&app.billing, invoice.id, amount(wrong), &trail)
                .await
                .unwrap_err();
            assert!(refusal.to_string().contains(words), "{wrong}: {refusal}");
        }
        assert_eq!(balance(books).await, "-1.2345675");
        let paid =
            invoice_changes::mark_paid(&app.billing, invoice.id, None, &trail).await.unwrap().credit.unwrap();
        assert_eq!(
            (paid.amount.to_string(), paid.remaining.to_string()),
            ("1.24".to_owned(), "0.0054325".to_owned())
        );
        assert_eq!(balance(books).await, "0.0054325");
        let again = invoice_changes::mark_paid(&app.billing, invoice.id, amount("2"), &trail).await.unwrap();
        assert!(again.was_unchanged && again.credit.is_none());
        assert_eq!(balance(books).await, "0.0054325");

        // 411,522 tokens are 1.028805. The rest of the payment pays 0.0054325 of them, so 1.0233725 are due.
        books.use_today("chat-a", 411_522, 0).await;
        books.set_time("2026-03-15T09:00:00Z");
        books.run_scheduler().await;
        let invoice = books.invoices().await.remove(1);
        assert_eq!(invoice.due.to_string(), "1.0233725");
        let more = invoice_changes::mark_paid(&app.billing, invoice.id, amount("5"), &trail)
            .await
            .unwrap()
            .credit
            .unwrap();
        assert_eq!(more.remaining.to_string(), "3.9766275");
        assert_eq!(balance(books).await, "3.9766275");
    });
}

#[on_each_database]
fn concurrent_settlement_happens_once(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 0, 500_000).await;
        books.set_time("2026-02-15T09:00:00Z");
        books.run_scheduler().await;
        let id = books.invoices().await[0].id;
        let (app, trails) = (&books.world.app, Trail::operator());
        books.world.clock.advance_ms(1);
        let paid =
            join_all((0..6).map(|_| jobs::invoice_changes::mark_paid(&app.billing, id, None, &trails))).await;
        assert_eq!(paid.iter().filter(|settled| !settled.as_ref().unwrap().was_unchanged).count(), 1);
        assert_eq!(balance(books).await, "0");
        books.world.clock.advance_ms(1);
        let void = join_all((0..6).map(|_| jobs::invoice_changes::void(&app.billing, id, &trails))).await;
        assert_eq!(void.iter().filter(|settled| !settled.as_ref().unwrap().was_unchanged).count(), 1);
        assert_eq!(balance(books).await, "3");
        let refusal =
            jobs::invoice_changes::mark_paid(&app.billing, id, None, &trails).await.unwrap_err().to_string();
        assert_eq!(refusal, "invoice 1 is void and can't be paid");
        let expected = ["system invoice.created", "operator invoice.paid", "operator invoice.voided"];
        assert_eq!(trail(books).await, expected);
    });
}
