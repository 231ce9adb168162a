//! The pages of operators.

mod held_forms;
mod invoices;
mod margins;
mod second_factors;

use serde_json::json;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::operators::roles;
use tollkeeper::tenants::roles::OrganizationRole;
use tollkeeper::trail::{self, Filter, Trail};

use super::pages::side_links;
use support::console::{Browser, assert_escaped};
use support::http::Call;
use support::world::{TestUser, World};
use support::{Database, on_each_database};

const TOP: &str = "/console/installation";

/// Creates an operator with a second factor, and opens a browser in which they are signed in.
async fn operator(world: &World) -> (TestUser, Browser) {
    let user = world.user("opal").await;
    world.add_authenticator_now(&user.access_token).await;
    roles::grant(&world.app.operators, user.id, &Trail::operator()).await.unwrap();
    (user.clone(), world.browser(user.id).await)
}

const PAGES: [&str; 9] =
    ["", "/users", "/organizations", "/invoices", "/margins", "/catalog", "/mail", "/audit", "/settings"];

/// Sends due e-mails, and returns the notices of changes by operators to this address.
async fn notices(world: &World, to: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .filter(|text| text.contains(&format!("To: {to}\n")) && text.contains("An administrator of "))
        .collect()
}

async fn entries(world: &World, action: &str) -> Vec<(String, String)> {
    let filter = Filter { action: action.to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    found.into_iter().map(|entry| (entry.actor, entry.target)).collect()
}

#[on_each_database]
async fn others_find_nothing_there(world: World) {
    let ada = world.user("ada").await;
    let stranger = world.browser(ada.id).await;
    for page in PAGES {
        let path = format!("{TOP}{page}");
        let answer = stranger.get(&world, &path).send().await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text.contains(">Admin<"));
        let signed_out = Browser::signed_out().get(&world, &path).send().await;
        assert_eq!(signed_out.status, 303, "{path}");
    }
    let disable = format!("{TOP}/users/{}/disable", ada.id);
    assert_eq!(stranger.post(&world, &disable, &[("name", "ada")]).send().await.status, 404);
    // An operator without a second factor sees how to add one.
    roles::grant(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
    let browser = world.browser(ada.id).await;
    let answer = browser.get(&world, TOP).send().await;
    assert_eq!((answer.status, answer.text.contains("Add a second factor")), (403, true));
    assert!(!answer.text.contains("/console/installation/users"), "{}", answer.text);
    roles::revoke(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
    let browser = world.browser(ada.id).await;
    assert_eq!(browser.get(&world, TOP).send().await.status, 404);
}

#[on_each_database]
async fn every_page_is_there_and_says_what_is(world: World) {
    let (opal, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let place = world.place(&ada, "<b>Acme</b>").await;
    for page in PAGES {
        let text = browser.page(&world, &format!("{TOP}{page}")).await;
        assert!(text.contains(">Admin<"), "{page}: the navigation is there");
    }
    let overview = browser.page(&world, TOP).await;
    assert!(overview.contains("The database answers.") && overview.contains("not checked yet"), "{overview}");
    let links: Vec<_> = side_links(&overview).into_iter().map(|(path, _)| path).collect();
    assert_eq!(links, PAGES.map(|page| format!("{TOP}{page}")), "the navigation has all pages in this order");
    assert_escaped(&browser.page(&world, &format!("{TOP}/organizations")).await, "<b>Acme</b>");
    let path = format!("{TOP}/organizations/{}", place.organization);
    let organization = browser.page(&world, &path).await;
    assert!(
        organization.contains("ada@example.com") && organization.contains("100.00 USD"),
        "{organization}"
    );
    assert!(
        !organization.contains("Acme</b> project") && !organization.contains(&place.project),
        "nothing of projects"
    );
    let users = browser.page(&world, &format!("{TOP}/users?search=ADA")).await;
    let link = |user: &TestUser| format!("/installation/users/{}", user.id);
    assert!(users.contains(&link(&ada)) && !users.contains(&link(&opal)), "{users}");
    let operators = browser.page(&world, &format!("{TOP}/users?state=operator")).await;
    assert!(operators.contains(&link(&opal)) && !operators.contains(&link(&ada)), "{operators}");
    let user = browser.page(&world, &format!("{TOP}/users/{}", ada.id)).await;
    assert!(user.contains("owner") && user.contains("Disable the account"), "{user}");
    let me = browser.page(&world, &format!("{TOP}/users/{}", opal.id)).await;
    assert!(!me.contains("Disable the account"), "{me}");
    let settings = browser.page(&world, &format!("{TOP}/settings")).await;
    assert!(settings.contains("registration = &#34;open&#34;"), "{settings}");
    let audit = browser.page(&world, &format!("{TOP}/audit?action=organization.created")).await;
    assert!(audit.contains(&place.organization), "{audit}");
    for path in ["/users/user_x", "/users/x/disable", "/organizations/x", "/invoices/x/void"] {
        assert_eq!(browser.get(&world, &format!("{TOP}{path}")).send().await.status, 404, "{path}");
    }
    // An operator isn't a member of the organization.
    for path in ["", "/projects", "/members"] {
        let path = format!("/console/organizations/{}{path}", place.organization);
        assert_eq!(browser.get(&world, &path).send().await.status, 403, "{path}");
    }
}

#[on_each_database]
async fn accounts_are_disabled_enabled_and_reset(world: World) {
    let (opal, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    world.add_authenticator_now(&ada.access_token).await;
    let page = |act: &str| format!("{TOP}/users/{}/{act}", ada.id);
    let to = |done: &str| format!("{TOP}/users/{}?done={done}", ada.id);

    let asked = browser.page(&world, &page("disable")).await;
    assert!(asked.contains("ada@example.com") && asked.contains("Type it to confirm."), "{asked}");
    let wrong = browser.post(&world, &page("disable"), &[("name", "bob")]).send().await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    let reset = browser.done(&world, &page("reset-second-factor"), &[("name", "ada")]).await;
    assert_eq!(reset, to("user_second_factor_reset"));
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).refused().await.0, 401);
    let fresh = world.session(ada.id).await;
    let state = world.get("/v1/auth/second-factor").bearer(&fresh.access_token).data().await;
    assert_eq!(state["totp"], json!(null));
    assert_eq!(
        browser.done(&world, &page("end-sessions"), &[("name", "ada")]).await,
        to("user_sessions_ended")
    );
    assert_eq!(world.get("/v1/auth/me").bearer(&fresh.access_token).refused().await.0, 401);
    assert_eq!(browser.done(&world, &page("disable"), &[("name", "ada")]).await, to("user_disabled"));
    assert!(browser.page(&world, &to("user_disabled")).await.contains("Enable the account"));
    assert_eq!(browser.done(&world, &page("enable"), &[("name", "ada")]).await, to("user_enabled"));

    for action in ["user.second_factor_reset", "user.disabled", "user.enabled"] {
        assert_eq!(entries(&world, action).await, [(opal.id.to_string(), ada.id.to_string())], "{action}");
    }
    assert_eq!(notices(&world, "ada@example.com").await.len(), 3);
    // Operators can't lock themselves out.
    let own = format!("{TOP}/users/{}/disable", opal.id);
    assert_eq!(browser.post(&world, &own, &[("name", "opal")]).send().await.status, 400);
}

#[on_each_database]
async fn money_is_changed_and_told_to_the_owners(world: World) {
    let (opal, browser) = operator(&world).await;
    let (ada, mia) = (world.user("ada").await, world.user("mia").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &mia, OrganizationRole::Admin).await;
    let here = format!("{TOP}/organizations/{}", place.organization);
    let credit = format!("{here}/credit");
    let fields = [("amount", "25.00"), ("reference", "R-1"), ("kind", "purchase"), ("name", "Acme")];
    for (field, value, words) in [
        ("amount", "much", "Amount must be a decimal"),
        ("amount", "-1", "Amount must be more than 0"),
        ("reference", "payment:1", "Reference can"),
        ("name", "Other", "The name doesn"),
    ] {
        let bad = fields.map(|(name, old)| (name, if name == field { value } else { old }));
        let answer = browser.post(&world, &credit, &bad).send().await;
        assert_eq!((answer.status, answer.text.contains(words)), (400, true), "{field}: {}", answer.text);
    }
    assert_eq!(browser.done(&world, &credit, &fields).await, format!("{here}?done=credit_added"));
    assert_eq!(browser.done(&world, &credit, &fields).await, format!("{here}?done=credit_there"));
    let limit = format!("{here}/credit-limit");
    let set = [("amount", "7"), ("name", "Acme")];
    assert_eq!(browser.done(&world, &limit, &set).await, format!("{here}?done=credit_limit_set"));
    let page = browser.page(&world, &here).await;
    assert!(page.contains("25.00 USD") && page.contains("7.00 USD"), "{page}");
    let told = notices(&world, "ada@example.com").await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|mail| mail.contains("Acme")), "{told:?}");
    assert_eq!(told.iter().filter(|mail| mail.contains("R-1")).count(), 1, "{told:?}");
    assert!(notices(&world, "mia@example.com").await.is_empty(), "only owners are notified");
    let set = (opal.id.to_string(), place.organization.clone());
    assert_eq!(entries(&world, "organization.credit_limit_set").await, [set]);
    // The change is also in the organization's own audit log.
    let path = format!("{}/audit-log?action=credit.added", place.organization_path());
    let log = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(log["entries"][0]["actor"]["id"], opal.id.to_string());
}

#[on_each_database]
async fn catalog_mail_and_their_forms(world: World) {
    let (opal, browser) = operator(&world).await;
    let to = browser.done(&world, &format!("{TOP}/catalog/reload"), &[]).await;
    assert_eq!(to, format!("{TOP}/catalog?done=catalog_reload_ordered"));
    let ordered = (opal.id.to_string(), "catalog".to_owned());
    assert_eq!(entries(&world, "catalog.reload_ordered").await, [ordered]);
    let to = browser.done(&world, &format!("{TOP}/mail/test"), &[("email", "ops@example.com")]).await;
    assert_eq!(to, format!("{TOP}/mail?done=test_mail_sent"));
    let bad = browser.post(&world, &format!("{TOP}/mail/test"), &[("email", "ops")]).send().await;
    assert_eq!(bad.status, 400);
    let register =
        json!({"email": "eve@example.com", "password": "Correct-Horse-7-Staple", "username": "eve"});
    world.post("/v1/auth/register", &register).data().await;
    assert!(browser.page(&world, &format!("{TOP}/mail")).await.contains("eve@example.com"));
    let to = browser.done(&world, &format!("{TOP}/mail/retry"), &[]).await;
    assert_eq!(to, format!("{TOP}/mail?done=mails_retried"));
}

#[on_each_database]
async fn changes_need_a_recent_proof_and_an_hour_without_use_ends_the_session(world: World) {
    let (_, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let page = format!("{TOP}/users/{}/disable", ada.id);
    world.clock.advance_ms(15 * MINUTE_MS);
    world.catch_up().await;
    let next = format!("/console/reauthenticate?next={page}");
    // A form with only a button has no values to keep.
    for call in [browser.get(&world, &page), browser.post(&world, &page, &[])] {
        let answer = Call::send(call).await;
        assert_eq!((answer.status, answer.header("location")), (303, next.as_str()));
    }
    let reload = browser.post(&world, &format!("{TOP}/catalog/reload"), &[]).send().await;
    assert_eq!(reload.header("location"), format!("/console/reauthenticate?next={TOP}/catalog"));
    browser.page(&world, TOP).await;
    world.clock.advance_ms(HOUR_MS - 1);
    browser.page(&world, TOP).await;
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(browser.get(&world, TOP).send().await.status, 303, "signed out");
}

#[on_each_database]
fn operators_are_seen_from_their_network_only(database: Database) {
    let settings = [("TOLLKEEPER_CONSOLE__OPERATOR_ADDRESSES", "10.1.0.0/16, 2001:db8::1")];
    database.run(&settings, async |world| {
        let (_, browser) = operator(&world).await;
        for (address, status) in [
            ("10.1.2.3", 200),
            ("2001:db8::1", 200),
            ("::ffff:10.1.2.3", 200),
            ("10.2.0.1", 404),
            ("2001:db8::2", 404),
        ] {
            let answer = browser.get(&world, TOP).from(address).send().await;
            assert_eq!(answer.status, status, "{address}");
        }
    });
}
