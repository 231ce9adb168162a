//! Pages of money: balance, credits, movements, invoices, limits, and the overview.

use http::Method;
use serde_json::json;
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::billed::fresh_token;
use support::console::Browser;
use support::transcript::{Books, with_books};
use support::world::World;
use support::{Database, on_each_database};

const JANUARY: &str = "2026-01-15T09:00:00Z";

/// Opens a page of the organization as its owner.
async fn page(books: &Books<'_>, path: &str) -> String {
    let browser = books.world.browser(books.ada.id).await;
    browser.page(books.world, &at(books, path)).await
}

fn at(books: &Books<'_>, path: &str) -> String {
    format!("/console/organizations/{}{path}", books.place.organization)
}

/// Returns the cells of a table's rows.
fn rows(page: &str, label: &str) -> Vec<String> {
    let table = page.split(&format!("aria-label=\"{label}\"")).nth(1).unwrap_or_default();
    let body = table.split("<tbody>").nth(1).unwrap_or_default().split("</tbody>").next().unwrap();
    body.split("</tr>").map(text).filter(|row| !row.is_empty()).collect()
}

/// Returns the text of HTML, with one space between words.
fn text(html: &str) -> String {
    let parts = html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    parts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Returns the value next to a label.
fn fact(page: &str, label: &str) -> String {
    let rest = page.split(&format!("<dt>{label}</dt>")).nth(1).unwrap_or_else(|| panic!("{label}: {page}"));
    text(rest.split("</dd>").next().unwrap())
}

#[on_each_database]
fn balance_credits_and_discounts_are_exact(database: Database) {
    with_books(database, JANUARY, async |books| {
        let empty = page(books, "/billing").await;
        assert!(
            empty.contains("No credit yet.") && empty.contains("No discount tier reached yet."),
            "{empty}"
        );
        books.buy_credit("10", "payment <1>").await;
        books.grant_credit("2.5", "gift", "2026-03-01T00:00:00Z").await;
        // 3,000,000 x 0.0000025 = 7.5, less 0.05 of the 5 above the first million: 0.25. And 0.7 nano.
        books.use_today("chat-a", 3_000_000, 0).await;
        books.use_today("embed-e", 1, 0).await;
        let billing = page(books, "/billing").await;
        assert_eq!(fact(&billing, "This month so far"), "7.25 USD");
        assert!(billing.contains("<span title=\"7.2500000007 USD\">7.25 USD</span>"), "{billing}");
        // 12.5 - 7.5: the discount is credited when the month closes.
        assert_eq!(fact(&billing, "Balance"), "5.00 USD");
        assert_eq!(fact(&billing, "Can be spent"), "105.00 USD");
        assert!(!billing.contains("is negative"), "{billing}");
        assert_eq!(fact(&billing, "Pending"), "0.00 USD");
        assert_eq!(fact(&billing, "Credit limit"), "100.00 USD");
        assert_eq!(fact(&billing, "Plan"), "Pay as you go");
        assert_eq!(fact(&billing, "Month"), "Jan 2026 , in UTC");
        assert_eq!(fact(&billing, "Invoice date"), "2 Feb 2026");
        let discounts = rows(&billing, "Volume discounts this month");
        assert_eq!(discounts, ["Volume discount: chat-a, prompt tokens -0.25"]);
        // The gift ends first, so it is used first: 7.5 - 2.5 = 5 of the 10.
        let credits = rows(&billing, "Credits");
        let due = [
            "gift grant 0.00 2.50 15 Jan 2026, 09:00 UTC 1 Mar 2026, 00:00 UTC",
            "payment &#60;1&#62; purchase 5.00 10.00 15 Jan 2026, 09:00 UTC Never",
        ];
        let mut sorted = credits.clone();
        sorted.sort();
        assert_eq!(sorted, due);
    });
}

#[on_each_database]
fn movements_are_those_of_the_api_and_add_up(database: Database) {
    with_books(database, JANUARY, async |books| {
        assert!(page(books, "/billing/movements").await.contains("No transactions yet."));
        books.buy_credit("10", "=payment").await;
        books.set_time("2026-01-16T23:59:59Z");
        books.use_today("chat-a", 1_000, 0).await;
        books.set_time("2026-01-17T00:00:00Z");
        books.use_today("chat-a", 0, 1).await;
        let movements = page(books, "/billing/movements").await;
        let due = [
            // 0.000006
            "17 Jan 2026, 00:00 UTC Usage -0.000006",
            // 1000 x 0.0000025
            "16 Jan 2026, 23:59 UTC Usage -0.0025",
            "15 Jan 2026, 09:00 UTC Credit =payment 10.00",
        ];
        let time = "<time datetime=\"2026-01-16T23:59:59.000Z\" title=\"16 Jan 2026, 23:59:59 UTC\">";
        assert!(movements.contains(time), "{movements}");
        // The decimal points are below each other.
        let blanks = "<span data-blanks=\"\u{2007}\u{2007}\u{2007}\u{2007}\">10.00</span>";
        assert!(movements.contains(blanks) && movements.contains("Amount (USD)"), "{movements}");
        assert_eq!(rows(&movements, "Transactions"), due);
        let filtered = page(books, "/billing/movements?start_date=2026-01-16&end_date=2026-01-16").await;
        assert_eq!(rows(&filtered, "Transactions"), ["16 Jan 2026, 23:59 UTC Usage -0.0025"]);
        let link = at(books, "/billing/movements/csv?start_date=2026-01-16&#38;end_date=2026-01-16");
        assert!(filtered.contains(&format!("href=\"{link}\"")), "{filtered}");
        let nothing = page(books, "/billing/movements?start_date=2026-02-01").await;
        assert!(nothing.contains("Nothing matches."), "{nothing}");

        let browser = books.world.browser(books.ada.id).await;
        let token = fresh_token(books.world, &books.ada).await;
        for (query, of_api) in [
            ("", ""),
            ("?end_date=2026-01-16", "?end_date=2026-01-17"),
            ("?start_date=2026-01-16", "?start_date=2026-01-16"),
        ] {
            let path = at(books, &format!("/billing/movements/csv{query}"));
            let file = browser.get(books.world, &path).send().await;
            let path = format!("{}/billing/movements{of_api}", books.place.organization_path());
            let api = books.world.get(&path).bearer(&token).header("accept", "text/csv").send().await;
            assert_eq!((file.status, &file.text), (200, &api.text), "{query}");
            assert!(file.header("content-disposition").starts_with("attachment; "), "{query}");
        }
        let path = at(books, "/billing/movements?start_date=2026-02-01&end_date=2026-01-31");
        let refused = browser.get(books.world, &path).send().await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("The last day can&#39;t be before the first day."), "{}", refused.text);
        assert!(refused.text.contains("value=\"2026-02-01\""), "{}", refused.text);
    });
}

#[on_each_database]
fn charges_are_a_file_of_each_month(database: Database) {
    with_books(database, JANUARY, async |books| {
        books.use_today("chat-a", 1_000, 0).await;
        let billing = page(books, "/billing").await;
        let link = at(books, "/billing/export");
        assert!(
            billing.contains(&format!("href=\"{link}\" download>Download as FOCUS CSV</a>")),
            "{billing}"
        );
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let of_january = format!("{link}?month=2026-01");
        let invoices = page(books, "/billing/invoices").await;
        assert!(invoices.contains(&format!("href=\"{of_january}\"")), "{invoices}");
        let browser = books.world.browser(books.ada.id).await;
        let token = fresh_token(books.world, &books.ada).await;
        for (path, month) in [(&of_january, "2026-01"), (&link, "2026-02")] {
            let file = browser.get(books.world, path).send().await;
            let of_api =
                format!("{}/billing/export?format=focus&month={month}", books.place.organization_path());
            let of_api = books.world.get(&of_api).bearer(&token).send().await;
            assert_eq!((file.status, &file.text), (200, &of_api.text), "{path}");
            for name in ["content-type", "content-disposition"] {
                assert_eq!(file.header(name), of_api.header(name), "{path}");
            }
            assert!(file.header("cache-control").contains("no-store"), "{path}");
        }
        assert_eq!(browser.get(books.world, &format!("{link}?month=soon")).send().await.status, 400);
    });
}

#[on_each_database]
fn invoices_are_listed_with_their_credit_notes_and_printed(database: Database) {
    with_books(database, JANUARY, async |books| {
        assert!(page(books, "/billing/invoices").await.contains("No invoices yet."));
        books.buy_credit("2", "payment 1").await;
        books.use_today("chat-a", 1_000_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        // 1,000,000 x 0.0000025 = 2.5, of which 2 were available.
        let list = rows(&page(books, "/billing/invoices").await, "Invoices");
        assert_eq!(list, ["Invoice 1 Jan 2026 Open 2.50 0.50 FOCUS CSV of Jan 2026"]);
        let overview = page(books, "").await;
        assert!(overview.contains("You have an unpaid invoice."), "{overview}");
        assert!(page(books, "/billing").await.contains("You have an unpaid invoice."));
        // 400,000 x 0.0000025 = 1: 0.5 that was due, and 0.5 that was paid.
        books.correct_event(1, 400_000, 0).await;
        let invoices = page(books, "/billing/invoices").await;
        assert_eq!(
            rows(&invoices, "Invoices"),
            [
                "Invoice 1 Jan 2026 Paid 2.50 0.00 2 Feb 2026, 00:00 UTC FOCUS CSV of Jan 2026",
                "Credit note 1 of invoice 1 Jan 2026 2 Feb 2026, 00:00 UTC -1.00"
            ]
        );
        assert!(invoices.contains("Amount (USD)") && invoices.contains("Due (USD)"), "{invoices}");
        assert!(!page(books, "").await.contains("You have an unpaid invoice."));
        assert!(page(books, "/billing/invoices?status=open").await.contains("Nothing matches."));
        assert_eq!(rows(&page(books, "/billing/invoices?status=paid").await, "Invoices").len(), 2);

        let link = invoices.split("href=\"").find(|rest| rest.contains(">Invoice 1<")).unwrap();
        let link = link.split('"').next().unwrap();
        let browser = books.world.browser(books.ada.id).await;
        let printed = browser.get(books.world, link).send().await;
        let token = fresh_token(books.world, &books.ada).await;
        let path = link.replace("/console", "/v1");
        let of_api = books.world.get(&path).bearer(&token).header("accept", "text/html").send().await;
        assert_eq!((printed.status, &printed.text), (200, &of_api.text));
        for name in ["content-security-policy", "x-content-type-options", "x-frame-options"] {
            assert_eq!(printed.header(name), of_api.header(name), "{name}");
        }
        assert_eq!(printed.header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(printed.header("cache-control"), "no-store");
        let unknown = at(books, "/billing/invoices/invoice_01h2xcejqtf2nbrexx3vqjhp41");
        assert_eq!(browser.get(books.world, &unknown).send().await.status, 404);
        let bad = at(books, "/billing/invoices?status=late");
        assert_eq!(browser.get(books.world, &bad).send().await.status, 400);
    });
}

#[on_each_database]
fn overview_shows_the_month_and_a_low_balance(database: Database) {
    with_books(database, JANUARY, async |books| {
        let empty = page(books, "").await;
        assert!(empty.contains("No usage yet."), "{empty}");
        assert!(!empty.contains("Your balance is low"), "{empty}");
        books.buy_credit("10", "payment 1").await;
        // 20,000,000 x 0.0000025 = 50, less 0.05 of the 22.5 from the first million to the tenth, 1.125, and
        // 0.1 of the 25 above that, 2.5.
        books.use_today("chat-a", 20_000_000, 0).await;
        let overview = page(books, "").await;
        assert_eq!(fact(&overview, "This month so far"), "46.38 USD");
        // 10 - 50; 60 of the credit limit of 100 are left, which is more than the 50 of a week.
        let labels = overview.split("<dt>").skip(1).map(|rest| rest.split('<').next().unwrap());
        let labels: Vec<_> = labels.take(5).collect();
        assert_eq!(labels, ["Can be spent", "This month so far", "Balance", "Credit limit", "Pending"]);
        assert_eq!(fact(&overview, "Can be spent"), "60.00 USD");
        assert_eq!(fact(&overview, "Balance"), "-40.00 USD");
        assert!(overview.contains("The balance is negative: 40.00 USD isn’t invoiced yet."), "{overview}");
        assert!(!overview.contains("Your balance is low"), "{overview}");
        assert!(overview.contains("<title>15 Jan 2026, chat-a: 50.00</title>"), "{overview}");
        let projects = rows(&overview, "Projects and their usage this month");
        assert_eq!(projects, ["Acme project owner 1 20,000,000 50.00"]);
        // 4,000,001 x 0.0000025 = 10.0000025: 49.9999975 are left, which is less than 60.0000025.
        books.use_today("chat-a", 4_000_001, 0).await;
        assert!(page(books, "").await.contains("Your balance is low"));
        // 20,000,000 x 0.0000025 more: 49.9999975 - 50 is below zero.
        books.use_today("chat-a", 20_000_000, 0).await;
        let used_up = page(books, "").await;
        assert!(used_up.contains("You’re out of credit."), "{used_up}");
        assert_eq!(fact(&used_up, "Can be spent"), "-0.0000025 USD");
        // A debt of 100.0000025.
        assert_eq!(fact(&used_up, "Balance"), "-100.01 USD");
        let reason =
            "The amount that can be spent is negative: the balance is 0.0000025 USD below the credit limit.";
        assert!(used_up.contains(reason), "{used_up}");
        assert!(!used_up.contains("Your balance is low"), "{used_up}");
        books.buy_credit("1", "payment 2").await;
        assert!(page(books, "").await.contains("Your balance is low"));
        // A week later, nothing has been used for a week.
        books.set_time("2026-01-22T00:00:00Z");
        assert!(!page(books, "").await.contains("Your balance is low"));
    });
}

#[on_each_database]
fn limits_and_prices_are_shown_to_every_member(database: Database) {
    with_books(database, JANUARY, async |books| {
        let bob = books.world.user("bob").await;
        books.world.join_organization(&books.place, &bob, OrganizationRole::Member).await;
        let browser = books.world.browser(bob.id).await;
        let limits = browser.page(books.world, &at(books, "/limits")).await;
        let models = rows(&limits, "Models");
        // Prices of a million tokens.
        assert_eq!(models[0], "chat-a 60 5 4,096 2.50 2.50 6.00");
        assert!(models.contains(&"embed-e 300 20 8,192 0.0007 0.0007 –".to_owned()), "{models:?}");
        assert_eq!(fact(&limits, "Credit limit"), "100.00 USD");
        assert_eq!(fact(&limits, "Can be spent"), "100.00 USD");
    });
}

#[on_each_database]
fn who_may_not_see_the_billing_does_not(database: Database) {
    with_books(database, JANUARY, async |books| {
        let (world, place) = (books.world, books.place.clone());
        books.buy_credit("1", "payment 1").await;
        books.use_today("chat-a", 1_000_000, 0).await;
        books.set_time("2026-02-02T00:00:00Z");
        books.run_scheduler().await;
        let invoice = books.invoices().await.remove(0).id;
        let (bob, eve) = (world.user("bob").await, world.user("eve").await);
        world.join_organization(&place, &bob, OrganizationRole::Member).await;
        world.join_project(&place, &bob, ProjectRole::Viewer).await;
        let browser = world.browser(bob.id).await;
        let overview = browser.page(world, &at(books, "")).await;
        for hidden in [
            "This month so far",
            "You have an unpaid invoice",
            "Last 30 days",
            "<svg",
            "/billing",
            "/usage\"",
        ] {
            assert!(!overview.contains(hidden), "{hidden}: {overview}");
        }
        // Members see the balance, which their calls need, and the usage of their projects: 2.5 in January,
        // nothing in February.
        assert_eq!(fact(&overview, "Balance"), "-1.50 USD");
        assert_eq!(fact(&overview, "Can be spent"), "98.50 USD");
        assert!(
            overview.contains("The balance is negative: usage of 1.50 USD isn’t paid yet."),
            "{overview}"
        );
        let projects = rows(&overview, "Projects and their usage this month");
        assert_eq!(projects, ["Acme project viewer 0 0 0.00"]);
        let status =
            async |browser: &Browser, path: &str| browser.get(world, &at(books, path)).send().await.status;
        let strangers = world.browser(eve.id).await;
        let one = format!("/billing/invoices/{invoice}");
        for path in [
            "/billing",
            "/billing/movements",
            "/billing/movements/csv",
            "/billing/export",
            "/billing/invoices",
            &one,
            "/usage",
        ] {
            assert_eq!(status(&browser, path).await, 403, "{path}");
            assert_eq!(status(&strangers, path).await, 403, "{path}");
            let signed_out = Browser::signed_out().get(world, &at(books, path)).send().await;
            assert_eq!(signed_out.status, 303, "{path}");
        }
        assert_eq!(status(&browser, "/limits").await, 200);
        assert_eq!(status(&strangers, "/limits").await, 403);
        let foreign = world.place(&eve, "Other").await;
        let elsewhere = format!("/console/organizations/{}{one}", foreign.organization);
        assert_eq!(strangers.get(world, &elsewhere).send().await.status, 404);
    });
}

#[on_each_database]
async fn keys_that_end_soon_are_told_to_those_who_manage_them(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let ends = |days: i64, ms: i64| world.clock.now().plus_ms(days * DAY_MS + ms).to_string();
    let key = async |name: &str, expires_at: Option<String>| {
        world.key(&ada, &place, &json!({"name": name, "expires_at": expires_at})).await.0
    };
    let soon = key("Soon <b>", Some(ends(14, 0))).await;
    key("Later", Some(ends(14, 1))).await;
    let rotated = key("Rotated", None).await;
    let path = format!("{}/api-keys/{rotated}/rotate", place.project_path());
    world.call(Method::POST, &path).bearer(&ada.access_token).data().await;
    let at = format!("/console/organizations/{}", place.organization);
    let due = [
        format!(
            "{at}/projects/{}/api-keys/{soon}\">Soon &#60;b&#62;</a> of Acme project expires on",
            place.project
        ),
        format!(
            "{at}/projects/{}/api-keys/{rotated}\">Rotated</a> of Acme project was rotated",
            place.project
        ),
    ];
    let overview = world.browser(ada.id).await.page(&world, &at).await;
    assert!(due.iter().all(|notice| overview.contains(notice)), "{overview}");
    assert!(!overview.contains("Later"), "{overview}");

    for (name, role, sees) in [
        ("admin", Some(ProjectRole::Admin), true),
        ("developer", Some(ProjectRole::Developer), false),
        ("member", None, false),
    ] {
        let person = world.user(name).await;
        world.join_organization(&place, &person, OrganizationRole::Member).await;
        if let Some(role) = role {
            world.join_project(&place, &person, role).await;
        }
        let overview = world.browser(person.id).await.page(&world, &at).await;
        assert!(due.iter().all(|notice| overview.contains(notice) == sees), "{name}: {overview}");
    }
    let eve = world.user("eve").await;
    let other = world.organization(&eve, "Other").await;
    let overview = world.browser(eve.id).await.page(&world, &format!("/console/organizations/{other}")).await;
    assert!(!overview.contains("Rotated") && !overview.contains("Soon"), "{overview}");

    // The overview doesn't mention keys that have ended.
    world.clock.advance_ms(14 * DAY_MS);
    let overview = world.browser(ada.id).await.page(&world, &at).await;
    assert!(!overview.contains("Soon") && !overview.contains("Rotated"), "{overview}");
    assert!(overview.contains("Later"), "{overview}");
}
