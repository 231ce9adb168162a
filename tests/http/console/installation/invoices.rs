//! Operators mark invoices as paid, and void them, on the pages of the installation.

use serde_json::Value;
use tollkeeper::billing::audit;
use tollkeeper::billing::store::{credits, wallets};
use tollkeeper::tenants::roles::OrganizationRole;

use super::{TOP, entries, notices, operator};
use support::console::Browser;
use support::transcript::{Books, with_books};
use support::world::TestUser;
use support::{Database, on_each_database};

/// Returns an operator and their browser, for an organization with an invoice of 3 USD for January.
async fn scene(books: &mut Books<'_>) -> (TestUser, Browser) {
    let mia = books.world.user("mia").await;
    books.world.join_organization(&books.place, &mia, OrganizationRole::Admin).await;
    // 500,000 x 0.000006 = 3.
    books.use_today("chat-a", 0, 500_000).await;
    books.set_time("2026-02-02T00:00:00Z");
    books.run_scheduler().await;
    operator(books.world).await
}

/// Returns the wallet's posted balance, the remaining amount of each credit, and the invoice's status, amount
/// and amount due.
async fn state(books: &Books<'_>) -> (String, Vec<String>, [String; 3]) {
    let invoice = books.invoices().await.remove(0);
    let mut tx = books.world.app.db.read().await.unwrap();
    let wallet = wallets::get(&mut tx, books.organization_id()).await.unwrap().unwrap();
    let left = credits::list_remaining(&mut tx, books.organization_id()).await.unwrap();
    let left = left.iter().map(|credit| format!("{} of {}", credit.remaining, credit.reference)).collect();
    let of_invoice =
        [invoice.status.as_str().to_owned(), invoice.amount.to_string(), invoice.due.to_string()];
    (wallet.posted.to_string(), left, of_invoice)
}

/// Returns actor and target of the entries of this action in the organization's audit log, as its owner sees
/// it.
async fn own_trail(books: &Books<'_>, action: &str) -> Vec<(String, String)> {
    let token = support::billed::fresh_token(books.world, &books.ada).await;
    let path = format!("{}/audit-log?action={action}", books.place.organization_path());
    let log = books.world.get(&path).bearer(&token).data().await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |entry: &Value| (text(&entry["actor"]["id"]), text(&entry["target"]));
    log["entries"].as_array().unwrap().iter().map(entry).collect()
}

async fn assert_books_are_right(books: &Books<'_>) {
    let report = audit::check(&books.world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.drifts);
}

#[on_each_database]
fn an_open_invoice_is_marked_paid(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        let (opal, browser) = scene(books).await;
        let id = books.invoices().await[0].id;
        let open = ("-3".to_owned(), vec![], ["open", "3", "3"].map(str::to_owned));
        assert_eq!(state(books).await, open);
        let list = format!("{TOP}/invoices");
        let page = format!("{list}/{id}/mark-paid");
        let listed = browser.page(books.world, &list).await;
        assert!(
            listed.contains(&page) && listed.contains("Acme") && listed.contains("Due (USD)"),
            "{listed}"
        );
        let asked = browser.page(books.world, &page).await;
        let invoice =
            "Invoice 1 of <time datetime=\"2026-01\">Jan 2026</time> for Acme: 3.00 USD, 3.00 USD due";
        assert!(asked.contains(invoice), "{asked}");

        let wrong = browser.post(books.world, &page, &[("name", "Acne")]).send().await;
        assert_eq!(
            (wrong.status, wrong.text.contains("The name doesn&#39;t match.")),
            (400, true),
            "{}",
            wrong.text
        );
        assert_eq!(state(books).await, open);
        for _ in 0..2 {
            // Sending the form again changes nothing.
            let to = browser.done(books.world, &page, &[("name", "Acme")]).await;
            assert_eq!(to, format!("{list}?done=invoice_paid"));
            assert_eq!(state(books).await, ("0".to_owned(), vec![], ["paid", "3", "0"].map(str::to_owned)));
        }
        let listed = browser.page(books.world, &format!("{list}?done=invoice_paid")).await;
        assert!(listed.contains("No invoice is open") && listed.contains("paid"), "{listed}");
        let entry = (opal.id.to_string(), id.to_string());
        assert_eq!(entries(books.world, "invoice.paid").await, std::slice::from_ref(&entry));
        assert_eq!(own_trail(books, "invoice.paid").await, [entry]);
        let told = notices(books.world, "ada@example.com").await;
        let [mail] = told.as_slice() else { panic!("{told:?}") };
        assert!(mail.contains("Acme") && mail.contains("Its invoice 1 of 2026-01 is paid."), "{mail}");
        assert!(notices(books.world, "mia@example.com").await.is_empty(), "only owners are told");
        assert_books_are_right(books).await;
    });
}

#[on_each_database]
fn an_invoice_is_voided_and_what_was_paid_of_it_comes_back(database: Database) {
    with_books(database, "2026-01-15T09:00:00Z", async |books| {
        books.buy_credit("1", "payment 1").await;
        let (opal, browser) = scene(books).await;
        let id = books.invoices().await[0].id;
        let open = ("-2".to_owned(), vec![], ["open", "3", "2"].map(str::to_owned));
        assert_eq!(state(books).await, open);
        let list = format!("{TOP}/invoices");
        let page = format!("{list}/{id}/void");
        assert!(browser.page(books.world, &list).await.contains(&page));
        let wrong = browser.post(books.world, &page, &[("name", "1")]).send().await;
        assert_eq!(wrong.status, 400, "{}", wrong.text);
        assert_eq!(state(books).await, open);
        // The invoice is no longer owed, and the 1 that was paid can be spent.
        let void = ("1".to_owned(), vec!["1 of payment 1".to_owned()], ["void", "3", "0"].map(str::to_owned));
        for _ in 0..2 {
            let to = browser.done(books.world, &page, &[("name", "Acme")]).await;
            assert_eq!(to, format!("{list}?done=invoice_voided"));
            assert_eq!(state(books).await, void);
        }
        let entry = (opal.id.to_string(), id.to_string());
        assert_eq!(entries(books.world, "invoice.voided").await, std::slice::from_ref(&entry));
        assert_eq!(own_trail(books, "invoice.voided").await, [entry]);
        let told = notices(books.world, "ada@example.com").await;
        let [mail] = told.as_slice() else { panic!("{told:?}") };
        assert!(
            mail.contains("Its invoice 1 of 2026-01 is void: its amount is back in the balance."),
            "{mail}"
        );
        assert!(notices(books.world, "mia@example.com").await.is_empty(), "only owners are told");
        // A void invoice can't be paid.
        let paid =
            browser.post(books.world, &format!("{list}/{id}/mark-paid"), &[("name", "Acme")]).send().await;
        assert_eq!((paid.status, paid.text.contains("Invoice 1 is void and")), (400, true), "{}", paid.text);
        assert_eq!(state(books).await, void);
        assert_books_are_right(books).await;
    });
}
