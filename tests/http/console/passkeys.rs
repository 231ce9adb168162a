//! Passkeys in the console: the pages of the account, sign-in, the second step, and the page that asks for a
//! proof of identity.

use serde_json::Value;
use tollkeeper::clock::MINUTE_MS;

use super::pages::{check_headers, check_size};
use support::console::{Browser, hidden};
use support::http::{Answer, Call};
use support::security_key::SecurityKey;
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

pub(crate) const SIGN_IN: &str = "/console/sign-in";
const BY_PASSKEY: &str = "/console/sign-in/passkey";
const STATE: &str = "/console/account/second-factor";
pub(crate) const NEW: &str = "/console/account/second-factor/passkeys/new";
pub(crate) const AGAIN: &str = "/console/reauthenticate";
const PROVE: &str = "/console/reauthenticate/passkey";

/// Returns the value of an attribute of the page's button for passkeys.
fn attribute(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name}: {page}"));
    let value = rest.split('"').next().unwrap();
    value.replace("&#34;", "\"").replace("&quot;", "\"").replace("&#38;", "&").replace("&amp;", "&")
}

/// Returns the options of the page's button for passkeys.
fn options(page: &str) -> Value {
    serde_json::from_str(&attribute(page, "data-passkey")).unwrap()
}

/// Creates a passkey for a page that adds one; returns the fields that the form sends.
pub(crate) fn made(page: &str, key: &mut SecurityKey) -> [(&'static str, String); 2] {
    let credential = key.make(&options(page), &attribute(page, "data-origin"));
    [("ceremony", hidden(page, "ceremony")), ("credential", credential.to_string())]
}

/// Signs the options of a page; returns the fields that the form sends.
pub(crate) fn signed(page: &str, key: &mut SecurityKey) -> [(&'static str, String); 2] {
    let credential = key.sign(&options(page), &attribute(page, "data-origin"));
    [("ceremony", hidden(page, "ceremony")), ("credential", credential.to_string())]
}

fn send(
    world: &World,
    browser: &Browser,
    path: &str,
    answer: &[(&'static str, String)],
    more: &[(&str, &str)],
) -> Call {
    let answer = answer.iter().map(|(name, value)| (*name, value.as_str()));
    let fields: Vec<_> = answer.chain(more.iter().copied()).collect();
    browser.post(world, path, &fields)
}

/// Adds a passkey in a browser; returns the passkey and the answer.
pub(crate) async fn add(world: &World, browser: &Browser, more: &[(&str, &str)]) -> (SecurityKey, Answer) {
    let mut key = SecurityKey::new();
    let page = browser.page(world, NEW).await;
    let answer = send(world, browser, NEW, &made(&page, &mut key), more).send().await;
    (key, answer)
}

fn signed_in(answer: &Answer) -> Browser {
    let mut browser = Browser::signed_out();
    browser.take(answer);
    browser
}

const FIELDS: &[(&str, &str)] =
    &[("name", "<b>Laptop</b>"), ("shown", "asked_after_password"), ("asked_after_password", "true")];

#[on_each_database]
async fn passkey_is_added_with_recovery_codes_renamed_and_removed(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let state = browser.page(&world, STATE).await;
    assert!(state.contains(&format!("href=\"{NEW}\"")), "{state}");
    let page = browser.get(&world, NEW).send().await;
    check_headers(&page, NEW);
    check_size(&page, NEW);
    assert!(
        page.text.contains("Also require a second factor with my password") && page.text.contains("checked")
    );
    assert!(page.text.contains("hidden>Add the passkey</button>"), "the script shows it: {}", page.text);
    assert_eq!(options(&page.text)["authenticatorSelection"]["residentKey"], "required");

    let (mut key, added) = add(&world, &browser, FIELDS).await;
    assert_eq!((added.status, added.header("cache-control")), (200, "no-store"), "{}", added.text);
    assert!(added.text.contains("Your passkey is added") && added.text.contains("Recovery codes"));
    let state = browser.page(&world, STATE).await;
    assert!(state.contains("&#60;b&#62;Laptop") && !state.contains("<b>Laptop"), "{state}");
    assert!(state.contains("You have 10 recovery codes left") && state.contains("never"), "{state}");
    let path = state.split("/console/account/second-factor/passkeys/passkey_").nth(1).unwrap();
    let path = format!("/console/account/second-factor/passkeys/passkey_{}", &path[..26]);

    let rename = browser.get(&world, &path).send().await;
    check_headers(&rename, &path);
    let wrong = browser.post(&world, &path, &[("name", "")]).send().await;
    assert!(wrong.status == 400 && wrong.text.contains("Name can&#39;t be empty"), "{}", wrong.text);
    let done = browser.done(&world, &path, &[("name", "Phone")]).await;
    assert_eq!(done, format!("{STATE}?done=passkey_renamed"));
    assert!(browser.page(&world, &done).await.contains("Phone"));

    // Another user can't see the passkey.
    let bob = world.browser(world.user("bob").await.id).await;
    for path in [path.clone(), format!("{path}/remove")] {
        assert_eq!(bob.get(&world, &path).send().await.status, 404, "{path}");
        assert_eq!(bob.post(&world, &path, &[("name", "x")]).send().await.status, 404, "{path}");
    }

    let remove = format!("{path}/remove");
    assert!(browser.page(&world, &remove).await.contains("This is your last passkey."));
    assert_eq!(browser.done(&world, &remove, &[]).await, format!("{STATE}?done=passkey_removed"));
    let state = browser.page(&world, STATE).await;
    assert!(!state.contains("Recovery codes") && !state.contains("Phone"), "{state}");
    let page = Browser::signed_out().page(&world, SIGN_IN).await;
    let gone = signed(&page, &mut key);
    let gone = send(&world, &Browser::signed_out(), BY_PASSKEY, &gone, &[]).send().await;
    assert_eq!(gone.status, 401, "{}", gone.text);
}

#[on_each_database]
async fn password_may_stay_enough(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let (_, added) = add(&world, &browser, &[("name", "x"), ("shown", "asked_after_password")]).await;
    assert_eq!(added.header("location"), format!("{STATE}?done=passkey_added"), "{}", added.text);
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let answer = Browser::signed_out().post(&world, SIGN_IN, &fields).send().await;
    assert_eq!(answer.header("location"), "/console/");
    // The form for the next passkey asks again.
    assert!(browser.page(&world, NEW).await.contains("Also require a second factor"));
}

#[on_each_database]
async fn mistakes_leave_the_form_with_a_new_ceremony(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let (page, mut key) = (browser.page(&world, NEW).await, SecurityKey::new());
    let answer = made(&page, &mut key);
    let wrong = send(&world, &browser, NEW, &answer, &[("name", " ")]).send().await;
    assert!(wrong.status == 400 && wrong.text.contains("Name can&#39;t be empty"), "{}", wrong.text);
    assert_ne!(hidden(&wrong.text, "ceremony"), answer[0].1);
    let nothing = [("ceremony", answer[0].1.clone()), ("credential", "{}".to_owned())];
    let wrong = send(&world, &browser, NEW, &nothing, &[("name", "Laptop")]).send().await;
    assert!(wrong.status == 401 && wrong.text.contains("value=\"Laptop\""), "{}", wrong.text);
    check_headers(&wrong, NEW);
    world.clock.advance_ms(5 * MINUTE_MS);
    let late = send(&world, &browser, NEW, &answer, &[("name", "Laptop")]).send().await;
    assert!(late.status == 400 && late.text.contains("has expired or was already used"), "{}", late.text);
    let again = made(&late.text, &mut key);
    let added = send(&world, &browser, NEW, &again, &[("name", "Laptop")]).send().await;
    assert_eq!(added.status, 303, "{}", added.text);
}

#[on_each_database]
async fn person_signs_in_without_a_password(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let (mut key, _) = add(&world, &browser, FIELDS).await;
    let page = Browser::signed_out().page(&world, &format!("{SIGN_IN}?next=/console/models")).await;
    assert!(page.contains("autocomplete=\"username webauthn\""), "{page}");
    assert_eq!(attribute(&page, "data-action"), BY_PASSKEY);
    assert_eq!(options(&page)["allowCredentials"], serde_json::json!([]));
    let answer = signed(&page, &mut key);
    // The e-mail address and the password of the form are also sent, but are ignored.
    let more = [("next", "/console/models"), ("email", "x"), ("password", ""), ("remember_me", "true")];
    let entered = send(&world, &browser, BY_PASSKEY, &answer, &more).send().await;
    assert_eq!((entered.status, entered.header("location")), (303, "/console/models"), "{}", entered.text);
    assert!(entered.header("set-cookie").ends_with("Max-Age=2592000"));
    signed_in(&entered).page(&world, STATE).await;
    world.catch_up().await;
    let before = browser.get(&world, STATE).send().await.status;
    assert_eq!(before, 303, "the browser's earlier session has ended");

    let again = send(&world, &Browser::signed_out(), BY_PASSKEY, &answer, &more).send().await;
    assert!(again.status == 400 && again.text.contains("has expired or was already used"), "{}", again.text);
    check_headers(&again, BY_PASSKEY);
    assert_eq!(hidden(&again.text, "next"), "/console/models");
    let retried = send(&world, &Browser::signed_out(), BY_PASSKEY, &signed(&again.text, &mut key), &[]);
    let retried = retried.send().await;
    assert_eq!(retried.status, 303, "{}", retried.text);
    assert!(!retried.header("set-cookie").contains("Max-Age"), "{}", retried.header("set-cookie"));
    for fields in
        [&[("ceremony", String::new()), ("credential", String::new())], &signed(&again.text, &mut key)]
    {
        let mut fields = fields.clone();
        fields[0].1.push('x');
        let refused = send(&world, &Browser::signed_out(), BY_PASSKEY, &fields, &[]).send().await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    let foreign = world.call(http::Method::POST, BY_PASSKEY).header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.form(&[]).send().await.status, 403);
}

#[on_each_database]
async fn second_step_takes_a_passkey(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &world.browser(ada.id).await, FIELDS).await;
    let fields = [("email", "ada@example.com"), ("password", PASSWORD), ("remember_me", "true")];
    let first = Browser::signed_out().post(&world, SIGN_IN, &fields).send().await;
    assert_eq!(first.header("location"), "/console/sign-in/second-factor");
    let pending = first.header("set-cookie").split(';').next().unwrap().to_owned();
    let page = Browser::signed_out().get(&world, first.header("location")).header("cookie", &pending);
    let page = page.send().await.text;
    assert!(page.contains("Use a passkey, or enter one of your recovery codes"), "{page}");
    assert_eq!(hidden(&page, "remember_me"), "true");
    let entered = send(&world, &Browser::signed_out(), BY_PASSKEY, &signed(&page, &mut key), &[]);
    let entered = entered.header("cookie", &pending).send().await;
    assert_eq!(entered.status, 303, "{}", entered.text);
    let lines = entered.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let ended = lines.filter(|line| line.starts_with("tollkeeper-second-factor=;")).count();
    assert_eq!(ended, 1, "the first step is complete");
    signed_in(&entered).page(&world, STATE).await;
}

#[on_each_database]
async fn passkey_proves_who_the_person_is(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let browser = world.browser(ada.id).await;
    let without = browser.page(&world, AGAIN).await;
    assert!(!without.contains("data-passkey"), "{without}");
    let (mut key, _) = add(&world, &browser, FIELDS).await;
    let (mut of_bob, _) = add(&world, &world.browser(bob.id).await, FIELDS).await;
    world.clock.advance_ms(16 * MINUTE_MS);
    let stale = browser.get(&world, NEW).send().await;
    assert_eq!(stale.status, 303, "{}", stale.text);
    let page = browser.page(&world, stale.header("location")).await;
    assert_eq!(attribute(&page, "data-action"), PROVE);
    assert_eq!(options(&page)["allowCredentials"].as_array().map(Vec::len), Some(1));
    let next = hidden(&page, "next");
    assert_eq!(next, NEW);
    let foreign = send(&world, &browser, PROVE, &signed(&page, &mut of_bob), &[("next", &next)]);
    assert_eq!(foreign.send().await.status, 401);
    let proved = send(&world, &browser, PROVE, &signed(&page, &mut key), &[("next", &next)]).send().await;
    assert_eq!((proved.status, proved.header("location")), (303, NEW), "{}", proved.text);
    signed_in(&proved).page(&world, NEW).await;
    world.catch_up().await;
    assert_eq!(browser.get(&world, STATE).send().await.status, 303, "it has a new session");
}

#[on_each_database]
fn server_without_passkeys_says_why(database: Database) {
    for (settings, words) in [
        ([("TOLLKEEPER_SIGN_IN__PASSKEYS", "false")], "has turned off passkeys"),
        ([("TOLLKEEPER_PUBLIC_URL", "http://192.0.2.1")], "this server is reached by IP address"),
    ] {
        database.run(&settings, async |world| {
            let ada = world.user("ada").await;
            let browser = world.browser(ada.id).await;
            let state = browser.page(&world, STATE).await;
            assert!(state.contains(words) && !state.contains(NEW), "{state}");
            assert_eq!(browser.get(&world, NEW).send().await.status, 403);
            assert!(!Browser::signed_out().page(&world, SIGN_IN).await.contains("data-passkey"));
            let fields = [("ceremony", "x"), ("credential", "{}")];
            assert_eq!(Browser::signed_out().post(&world, BY_PASSKEY, &fields).send().await.status, 403);
        });
    }
}

/// On a loopback address, the pages contain the URL at which browsers support passkeys.
#[on_each_database(&[("TOLLKEEPER_PUBLIC_URL", "http://127.0.0.1:8080")])]
async fn address_of_this_machine_is_localhost(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    for path in [STATE, NEW] {
        let page = browser.page(&world, path).await;
        assert_eq!(attribute(&page, "data-elsewhere"), "http://localhost:8080");
    }
    let (mut key, _) = add(&world, &browser, FIELDS).await;
    let page = Browser::signed_out().page(&world, SIGN_IN).await;
    let entered = send(&world, &Browser::signed_out(), BY_PASSKEY, &signed(&page, &mut key), &[]);
    assert_eq!(entered.send().await.status, 303);
}

#[on_each_database]
async fn passkeys_are_among_the_data_of_the_account(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    add(&world, &browser, FIELDS).await;
    let answer = browser.get(&world, "/console/account/data").send().await;
    let passkeys = answer.json()["passkeys"].clone();
    assert_eq!((&passkeys[0]["name"], &passkeys[1]), (&"<b>Laptop</b>".into(), &Value::Null));
    let mut names: Vec<_> = passkeys[0].as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["created_at", "id", "last_used_at", "name", "synced"]);
}
