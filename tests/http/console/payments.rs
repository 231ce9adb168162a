//! Pages of payments, with a fake Stripe server.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::tenants::roles::OrganizationRole;

use super::hostile::HOSTILE;
use super::pages::check_headers;
use support::console::{Browser, assert_escaped, hidden};
use support::shop::{Shop, with_configured_shop, with_shop};
use support::stripe::cards::Card;
use support::stripe::faults::Fault;
use support::world::World;
use support::{Database, on_each_database};

/// Returns the path of a page of billing.
fn at(shop: &Shop<'_>, path: &str) -> String {
    format!("/console/organizations/{}/billing{path}", shop.books.place.organization)
}

async fn browser(shop: &Shop<'_>) -> Browser {
    shop.world().browser_session(shop.books.ada.id, true).await.0
}

/// Returns the fields that the form of a payment sends.
async fn form(shop: &Shop<'_>, browser: &Browser, amount: &'static str) -> [(&'static str, String); 3] {
    let page = browser.page(shop.world(), &at(shop, "/payments/new")).await;
    let new_id = hidden(&page, "new_id");
    [("new_id", new_id), ("amount", amount.to_owned()), ("shown", "save_card".to_owned())]
}

fn pairs<'a>(fields: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// Returns the id of the payment whose page a redirect opens.
fn id_of(shop: &Shop<'_>, location: &str) -> Value {
    let id = location.strip_prefix(&at(shop, "/payments/")).unwrap_or_else(|| panic!("{location}"));
    json!(id)
}

#[on_each_database]
fn credit_is_bought_once_however_often_the_form_is_sent(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let world = shop.world();
        let list = browser.page(world, &at(shop, "/payments")).await;
        for part in ["No payments yet.", "Save a card", ">Off<", "/billing/payments/new"] {
            assert!(list.contains(part), "{part}: {list}");
        }
        let balance = browser.page(world, &at(shop, "")).await;
        assert!(balance.contains("Buy credit"), "{balance}");
        let new = at(shop, "/payments/new");
        let page = browser.page(world, &new).await;
        assert!(page.contains("At least 5.00 USD, and at most 10,000.00 USD."), "{page}");
        let fields = form(shop, &browser, "25.50").await;
        let made = browser.done(world, &new, &pairs(&fields)).await;
        assert_eq!(browser.done(world, &new, &pairs(&fields)).await, made, "sent twice");
        assert_eq!((shop.rows().await.len(), shop.stripe.all("checkout.session").len()), (1, 1));

        let id = id_of(shop, &made);
        let session_id = shop.session(&id).await;
        let session = shop.stripe.object(&session_id);
        let url = session["url"].as_str().unwrap();
        // Stripe redirects back to this page.
        assert!(session["success_url"].as_str().unwrap().ends_with(&made), "{session}");
        let answer = browser.get(world, &made).send().await;
        check_headers(&answer, &made);
        let link = format!("href=\"{url}\" rel=\"noopener noreferrer\">Continue to payment</a>");
        assert!(answer.text.contains(&link), "{}", answer.text);
        for part in ["25.50 USD", "Awaiting payment"] {
            assert!(answer.text.contains(part), "{part}: {}", answer.text);
        }

        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        let paid = browser.page(shop.world(), &made).await;
        assert!(paid.contains(">Paid<") && !paid.contains("Continue to payment"), "{paid}");
        let list = browser.page(shop.world(), &at(shop, "/payments")).await;
        let amount = list.contains(">25.50</td>") && list.contains("Amount (USD)");
        assert!(amount && list.contains("1 payment"), "{list}");
        // The browser goes back, and sends the form again.
        assert_eq!(browser.done(shop.world(), &new, &pairs(&fields)).await, made);
        assert_eq!((shop.rows().await.len(), shop.balance().await), (1, "25.5".to_owned()));
    });
}

#[on_each_database]
fn mistakes_stay_in_the_form(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let new = at(shop, "/payments/new");
        for (amount, words) in [
            ("", "Amount can&#39;t be empty."),
            ("a lot", "aria-invalid"),
            ("4.99", "Amount must be at least 5 and at most 10000 USD."),
            ("10000.01", "at most 10000 USD."),
            ("7.001", "Amount is too precise for USD."),
        ] {
            let fields = form(shop, &browser, amount).await;
            let answer = browser.post(shop.world(), &new, &pairs(&fields)).send().await;
            assert_eq!(answer.status, 400, "{amount}: {}", answer.text);
            let typed = format!("value=\"{amount}\"");
            assert!(answer.text.contains(words) && answer.text.contains(&typed), "{amount}: {}", answer.text);
        }
        // A form with a foreign id creates nothing, and can be sent again.
        let foreign = [("new_id", "mine"), ("amount", "20")];
        let answer = browser.post(shop.world(), &new, &foreign).send().await;
        assert!(answer.status == 400 && answer.text.contains("The form expired."), "{}", answer.text);
        let again = [("new_id", hidden(&answer.text, "new_id")), ("amount", "20".to_owned())];
        let made = browser.done(shop.world(), &new, &pairs(&again)).await;
        // The same form with another amount is another payment, which the user has to confirm.
        let other = [again[0].clone(), ("amount", "30".to_owned())];
        let answer = browser.post(shop.world(), &new, &pairs(&other)).send().await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        assert!(answer.text.contains("That payment is in the list"), "{}", answer.text);
        let second = [("new_id", hidden(&answer.text, "new_id")), ("amount", "30".to_owned())];
        assert_ne!(browser.done(shop.world(), &new, &pairs(&second)).await, made);
        assert_eq!(shop.rows().await.len(), 2);
    });
}

#[on_each_database]
fn same_form_finds_the_payment_when_stripe_is_there_again(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let new = at(shop, "/payments/new");
        for fault in [Fault::LostRequest, Fault::LostAnswer, Fault::ErrorBefore] {
            let before = shop.rows().await.len();
            let fields = form(shop, &browser, "20").await;
            shop.stripe.fail_next("POST", "/v1/checkout/sessions", fault);
            let answer = browser.post(shop.world(), &new, &pairs(&fields)).send().await;
            let mut sent = fields.clone();
            if answer.status != 303 {
                assert_eq!(answer.status, 502, "{fault:?}: {}", answer.text);
                check_headers(&answer, &new);
                assert!(answer.text.contains("value=\"20\""), "{}", answer.text);
                assert!(answer.text.contains("nothing is paid twice"), "{}", answer.text);
                sent[0].1 = hidden(&answer.text, "new_id");
                assert_eq!(sent[0].1, fields[0].1, "the same form");
                let rows = shop.rows().await;
                let new = rows.iter().find(|row| row.checkout_url.is_none()).unwrap();
                let page = at(shop, &format!("/payments/{}", new.id));
                let waiting = browser.page(shop.world(), &page).await;
                assert!(waiting.contains("isn’t ready yet"), "{waiting}");
            }
            let made = browser.done(shop.world(), &new, &pairs(&sent)).await;
            assert!(browser.page(shop.world(), &made).await.contains("Continue to payment"));
            assert_eq!(shop.rows().await.len(), before + 1, "{fault:?}");
        }
        // A form with only a button is kept too.
        shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::ErrorBefore);
        shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::ErrorBefore);
        shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::ErrorBefore);
        let card = at(shop, "/card");
        let answer = browser.post(shop.world(), &card, &[]).send().await;
        if answer.status != 303 {
            assert_eq!(answer.status, 502, "{}", answer.text);
            assert!(answer.text.contains("Payment failed"), "{}", answer.text);
            assert!(answer.text.contains(">Send it again</button>"), "{}", answer.text);
        }
        shop.stripe.heal();
        browser.done(shop.world(), &card, &[]).await;
        assert!(browser.page(shop.world(), &card).await.contains("Continue to Stripe"));
    });
}

#[on_each_database]
fn forms_sent_at_once_make_one_payment(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        // The customer already exists, because this test isn't about creating one.
        shop.buy("10", false).await;
        let fields = form(shop, &browser, "20").await;
        let new = at(shop, "/payments/new");
        let sent = (0..6).map(|_| tokio::spawn(browser.post(shop.world(), &new, &pairs(&fields)).send()));
        let answers: Vec<_> = join_all(sent).await.into_iter().map(Result::unwrap).collect();
        // Stripe may still be busy with the first request: the page then contains the form, so that it can be
        // sent again.
        for answer in &answers {
            assert!([303, 502].contains(&answer.status), "{}", answer.text);
        }
        let made = browser.done(shop.world(), &new, &pairs(&fields)).await;
        for answer in answers.iter().filter(|answer| answer.status == 303) {
            assert_eq!(answer.header("location"), made);
        }
        assert_eq!((shop.rows().await.len(), shop.stripe.all("checkout.session").len()), (2, 2));
    });
}

#[on_each_database]
fn invoice_is_paid_by_its_button(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        let list = at(shop, "/invoices");
        let pay = format!("{list}/{}/pay", invoice.id);
        let page = browser.page(shop.world(), &list).await;
        assert!(page.contains(&format!("<form method=\"post\" action=\"{pay}\">")), "{page}");
        let made = browser.done(shop.world(), &pay, &[]).await;
        assert_eq!(browser.done(shop.world(), &pay, &[]).await, made, "pressed twice");
        let shown = browser.page(shop.world(), &made).await;
        // 10 less the discount: 3,000,000 x 0.0000025 x 0.05 = 0.375, rounded up.
        assert!(shown.contains("9.63 USD") && shown.contains("Continue to payment"), "{shown}");
        assert!(shown.contains(&format!("{list}/{}", invoice.id)), "{shown}");
        shop.stripe.visit(&shop.session(&id_of(shop, &made)).await, &Card::visa()).unwrap();
        shop.hear().await;
        let page = browser.page(shop.world(), &list).await;
        assert!(!page.contains("/pay\"") && page.contains(">Paid<"), "{page}");
        let done = browser.done(shop.world(), &pay, &[]).await;
        assert_eq!(done, format!("{list}?done=nothing_due"));
        assert_eq!(shop.rows().await.len(), 1);
    });
}

#[on_each_database]
fn card_is_saved_and_removed(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let (card, remove) = (at(shop, "/card"), at(shop, "/card/remove"));
        let page = browser.page(shop.world(), &card).await;
        assert!(page.contains("No card is saved.") && !page.contains("Remove the card"), "{page}");
        // Without a card, the page redirects instead of asking.
        assert_eq!(browser.get(shop.world(), &remove).send().await.header("location"), card);
        let done = browser.done(shop.world(), &card, &[]).await;
        assert_eq!(done, format!("{card}?done=card_page_ready"));
        browser.done(shop.world(), &card, &[]).await;
        let [session] = shop.stripe.all("checkout.session").try_into().unwrap();
        assert!(session["success_url"].as_str().unwrap().ends_with(&card), "{session}");
        let link = format!("href=\"{}\" rel=\"noopener noreferrer\"", session["url"].as_str().unwrap());
        let page = browser.page(shop.world(), &card).await;
        assert!(page.contains(&link), "{page}");
        // Only owners see the link.
        let bob = shop.world().user("bob").await;
        shop.world().join_organization(&shop.books.place, &bob, OrganizationRole::Admin).await;
        let admin = shop.world().browser_session(bob.id, true).await.0;
        let seen = admin.page(shop.world(), &card).await;
        assert!(!seen.contains("Continue to Stripe") && seen.contains("Only owners"), "{seen}");

        shop.stripe.visit(session["id"].as_str().unwrap(), &Card::visa()).unwrap();
        shop.hear().await;
        let page = browser.page(shop.world(), &card).await;
        for part in ["Visa ending in 4242", "08/2031", "Save another card", "Remove the card"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("Continue to Stripe"), "{page}");
        let question = browser.page(shop.world(), &remove).await;
        assert!(question.contains("Visa ending in 4242"), "{question}");
        for _ in 0..2 {
            let done = browser.done(shop.world(), &remove, &[]).await;
            assert_eq!(done, format!("{card}?done=card_removed"));
        }
        assert!(browser.page(shop.world(), &card).await.contains("No card is saved."));
        shop.work().await;
    });
}

/// Returns the fields of the form that switches on automatic top-ups, with a threshold of 10.
fn top_up(version: &str, restore_to: &'static str) -> [(&'static str, String); 6] {
    let fields = [
        ("version", version),
        ("shown", "enabled"),
        ("enabled", "true"),
        ("threshold", "10"),
        ("restore_to", restore_to),
        ("monthly_cap", ""),
    ];
    fields.map(|(name, value)| (name, value.to_owned()))
}

#[on_each_database]
fn automatic_top_up_is_set_and_nothing_is_lost(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let here = at(shop, "/auto-top-up");
        let page = browser.page(shop.world(), &here).await;
        assert!(
            page.contains("Automatic top-up requires a saved card.") && !page.contains("name=\"threshold\""),
            "{page}"
        );
        shop.buy("20", true).await;
        let page = browser.page(shop.world(), &here).await;
        let version = hidden(&page, "version");
        let wrong = browser.post(shop.world(), &here, &pairs(&top_up(&version, "12"))).send().await;
        assert_eq!(wrong.status, 400, "{}", wrong.text);
        let words = "New balance must be at least 5 USD more than Threshold.";
        assert!(wrong.text.contains(words) && wrong.text.contains("value=\"12\""), "{}", wrong.text);
        let hostile = top_up(&version, "50")
            .map(|(name, value)| (name, if name == "version" { value } else { HOSTILE.to_owned() }));
        let hostile = browser.post(shop.world(), &here, &pairs(&hostile)).send().await;
        assert_eq!(hostile.status, 400, "{}", hostile.text);
        assert_escaped(&hostile.text, HOSTILE);
        let done = browser.done(shop.world(), &here, &pairs(&top_up(&version, "50"))).await;
        assert_eq!(done, format!("{here}?done=auto_top_up_set"));
        let list = browser.page(shop.world(), &at(shop, "/payments")).await;
        assert!(list.contains("to 50.00 USD when less than 10.00 USD is available"), "{list}");

        // Another change came first: both versions are shown, and nothing is lost.
        let version = hidden(&browser.page(shop.world(), &here).await, "version");
        shop.top_up(&json!({"restore_to": 70})).await;
        let late = browser.post(shop.world(), &here, &pairs(&top_up(&version, "60"))).send().await;
        assert_eq!(late.status, 409, "{}", late.text);
        assert!(
            late.text.contains("<td class=\"lines\">60</td><td class=\"lines\">70</td>"),
            "{}",
            late.text
        );
        assert_eq!(shop.read_top_up().await["restore_to"], 70);
        let version = hidden(&late.text, "version");
        browser.done(shop.world(), &here, &pairs(&top_up(&version, "60"))).await;
        assert_eq!(shop.read_top_up().await["restore_to"], 60);
    });
}

#[on_each_database]
fn paused_top_up_is_turned_on_by_its_button_alone(database: Database) {
    with_shop(database, async |shop| {
        let browser = browser(shop).await;
        let here = at(shop, "/auto-top-up");
        shop.buy("20", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 60})).await;
        // Without a card, automatic top-up is paused when it would charge: 5,000,000 x 0.0000025 = 12.5.
        browser.done(shop.world(), &at(shop, "/card/remove"), &[]).await;
        shop.books.use_today("chat-a", 5_000_000, 0).await;
        shop.work().await;
        assert_eq!(shop.read_top_up().await["paused_reason"], "no_payment_method");
        let page = browser.page(shop.world(), &here).await;
        assert!(
            page.contains("Automatic top-up is paused: no card is saved.") && page.contains(">Paused<"),
            "{page}"
        );
        assert!(!page.contains("Turn it back on"), "{page}");
        shop.buy("10", true).await;
        let page = browser.page(shop.world(), &here).await;
        assert!(page.contains("Turn it back on"), "{page}");
        // Another amount doesn't turn automatic top-up back on.
        let version = hidden(&page, "version");
        browser.done(shop.world(), &here, &pairs(&top_up(&version, "65"))).await;
        let read = shop.read_top_up().await;
        assert_eq!((&read["restore_to"], &read["paused_reason"]), (&json!(65), &json!("no_payment_method")));
        let version = hidden(&browser.page(shop.world(), &here).await, "version");
        let resume = [("version", version.as_str()), ("enabled", "true"), ("resume", "true")];
        browser.done(shop.world(), &here, &resume).await;
        let read = shop.read_top_up().await;
        assert_eq!((&read["enabled"], &read["paused_reason"]), (&json!(true), &json!(null)));
        let version = hidden(&browser.page(shop.world(), &here).await, "version");
        let off =
            [("version", version.as_str()), ("shown", "enabled"), ("threshold", "10"), ("restore_to", "65")];
        browser.done(shop.world(), &here, &off).await;
        assert_eq!(shop.read_top_up().await["enabled"], false);
        shop.work().await;
    });
}

#[on_each_database]
fn admins_see_payments_and_members_do_not(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("10", true).await;
        let open = shop.begin(&json!({"amount": 30})).await;
        let payment = |id: &Value| at(shop, &format!("/payments/{}", id.as_str().unwrap()));
        for (name, role, status) in
            [("bob", OrganizationRole::Admin, 200), ("cy", OrganizationRole::Member, 403)]
        {
            let user = shop.world().user(name).await;
            shop.world().join_organization(&shop.books.place, &user, role).await;
            let browser = shop.world().browser_session(user.id, true).await.0;
            for path in [
                at(shop, "/payments"),
                payment(&id),
                payment(&open["id"]),
                at(shop, "/card"),
                at(shop, "/auto-top-up"),
            ] {
                let answer = browser.get(shop.world(), &path).send().await;
                assert_eq!(answer.status, status, "{name} {path}: {}", answer.text);
                for part in [
                    "Continue to",
                    "Buy credit",
                    "Save a card",
                    "<form method=\"post\" action=\"/console/organizations",
                ] {
                    assert!(!answer.text.contains(part), "{name} {path}: {part}: {}", answer.text);
                }
            }
            for path in ["/payments/new", "/card", "/card/remove", "/auto-top-up"] {
                let answer = browser.post(shop.world(), &at(shop, path), &[]).send().await;
                assert_eq!(answer.status, 403, "{name} {path}: {}", answer.text);
            }
        }
        let eve = shop.world().user("eve").await;
        let other = shop.world().place(&eve, "Other").await;
        let browser = shop.world().browser(eve.id).await;
        let path = format!(
            "/console/organizations/{}/billing/payments/{}",
            other.organization,
            id.as_str().unwrap()
        );
        assert_eq!(browser.get(shop.world(), &path).send().await.status, 404);
        assert_eq!(shop.rows().await.len(), 2);
        // The form of a user who is signed out keeps its values.
        let fields = [("new_id", "x"), ("amount", "17.25")];
        let answer =
            Browser::signed_out().post(shop.world(), &at(shop, "/payments/new"), &fields).send().await;
        assert_eq!(answer.status, 401, "{}", answer.text);
        assert!(answer.text.contains("value=\"17.25\""), "{}", answer.text);
    });
}

#[on_each_database]
async fn pages_say_that_payments_are_off(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let browser = world.browser(ada.id).await;
    let at = |path: &str| format!("/console/organizations/{}/billing{path}", place.organization);
    for path in ["/payments", "/payments/new", "/card", "/auto-top-up"] {
        let page = browser.page(&world, &at(path)).await;
        for part in ["Online payments aren’t available", "payments.stripe_secret_key_file"] {
            assert!(page.contains(part), "{path}: {part}: {page}");
        }
        assert!(!page.contains("<form method=\"post\" action=\"/console/organizations"), "{path}: {page}");
        assert!(!page.contains("<form class=\"form\""), "{path}: {page}");
    }
    for path in ["", "/invoices"] {
        let page = browser.page(&world, &at(path)).await;
        assert!(!page.contains("Buy credit") && !page.contains("/pay\""), "{path}: {page}");
    }
    // The forms of payments redirect to the page that explains why no payment is possible.
    for (path, fields) in [
        ("/payments/new", &[("new_id", "payment_01h2xcejqtf2nbrexx3vqjhp41"), ("amount", "20")][..]),
        ("/card", &[]),
        ("/card/remove", &[]),
        ("/auto-top-up", &[("enabled", "true")]),
    ] {
        assert_eq!(browser.done(&world, &at(path), fields).await, at("/payments"), "{path}");
    }
    let list = format!("{}/billing/payments", place.organization_path());
    assert_eq!(world.get(&list).bearer(&ada.access_token).data().await["total"], 0);
    assert_eq!(world.call(Method::GET, &at("/payments/none")).send().await.status, 303);
}

#[on_each_database]
fn payment_shows_its_tax_and_its_receipt(database: Database) {
    with_configured_shop(database, &[("TOLLKEEPER_PAYMENTS__STRIPE_TAX", "true")], async |shop| {
        shop.stripe.set_tax(190_000);
        let browser = browser(shop).await;
        let begun = shop.begin(&json!({"amount": 20})).await;
        let here = at(shop, &format!("/payments/{}", begun["id"].as_str().unwrap()));
        let open = browser.page(shop.world(), &here).await;
        assert!(open.contains("Stripe asks for your address and adds tax."), "{open}");
        assert!(!open.contains("<dt>Tax</dt>") && !open.contains("<dt>Total</dt>"), "{open}");
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        let paid = browser.page(shop.world(), &here).await;
        // 20 x 0.19 = 3.8.
        for part in ["<dt>Tax</dt><dd>3.80 USD</dd>", "<dt>Total</dt><dd>23.80 USD</dd>", "/invoices/in_"] {
            assert!(paid.contains(part), "{part}: {paid}");
        }
        assert!(!paid.contains("shown without tax"), "{paid}");
        // 11.90 x 20 / 23.80 = 10.
        let intent_id = shop.row(&begun["id"]).await.intent_id.unwrap();
        shop.stripe.refund_by_hand(&intent_id, 1_190);
        shop.hear().await;
        let refunded = browser.page(shop.world(), &here).await;
        for part in ["<dt>Refunded</dt><dd>10.00 USD</dd>", "shown without tax"] {
            assert!(refunded.contains(part), "{part}: {refunded}");
        }
    });
}

#[on_each_database]
fn forms_say_that_a_tax_is_paid_on_top(database: Database) {
    for (tax, is_taxed) in [("true", true), ("false", false)] {
        with_configured_shop(database, &[("TOLLKEEPER_PAYMENTS__STRIPE_TAX", tax)], async |shop| {
            shop.buy("20", true).await;
            let browser = browser(shop).await;
            let new = browser.page(shop.world(), &at(shop, "/payments/new")).await;
            assert_eq!(new.contains("plus tax"), is_taxed, "{new}");
            assert_eq!(new.contains("The full amount is added to the balance."), !is_taxed, "{new}");
            let top_up = browser.page(shop.world(), &at(shop, "/auto-top-up")).await;
            assert_eq!(top_up.contains("plus tax"), is_taxed, "{top_up}");
            assert_eq!(top_up.contains("Including tax, per calendar month"), is_taxed, "{top_up}");
        });
    }
}
