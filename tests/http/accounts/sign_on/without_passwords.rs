//! Servers on which people sign in without passwords (`sign_in.passwords = false`).

use http::Method;
use serde_json::{Value, json};
use tollkeeper::operators::roles;
use tollkeeper::trail::Trail;

use super::{FILE, START, connected, person};
use crate::console::passkeys;
use support::console::Browser;
use support::http::Call;
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

fn without_passwords(database: Database, test: impl AsyncFn(World, &IdentityProvider)) {
    let file = ProvidersFile::new();
    let settings = [(FILE, file.path()), ("TOLLKEEPER_SIGN_IN__PASSWORDS", "false".to_owned())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    database.run(&settings, async |world| {
        let provider = IdentityProvider::start().await;
        file.write(&world, &[("acme", &provider.issuer, "provision = \"any\"")]);
        test(world, &provider).await;
    });
}

fn log_in(world: &World, name: &str, password: &str) -> Call {
    world.post("/v1/auth/login", &json!({"email": format!("{name}@example.com"), "password": password}))
}

const DISABLED: (u16, &str) = (403, "passwords_disabled");
const BY_PASSWORD: &str = "/console/sign-in";
const PROVE: &str = "/v1/auth/reauthenticate";

#[on_each_database]
fn a_password_opens_no_account_but_an_operators(database: Database) {
    without_passwords(database, async |world, _| {
        let ada = world.user("ada").await;
        let refused = log_in(&world, "ada", PASSWORD).refused().await;
        assert_eq!((refused.0, refused.1.as_str()), DISABLED);
        // No one else learns whether the account exists.
        let wrong = (401, "invalid_credentials".to_owned());
        assert_eq!(log_in(&world, "ada", "Another-Password-1").refused().await, wrong);
        assert_eq!(log_in(&world, "eve", PASSWORD).refused().await, wrong);
        let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
        let answer = Browser::signed_out().post(&world, BY_PASSWORD, &fields).send().await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert!(answer.text.contains("only operators can sign in with a password"), "{}", answer.text);
        roles::grant(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
        log_in(&world, "ada", PASSWORD).data().await;
        assert_eq!(Browser::signed_out().post(&world, BY_PASSWORD, &fields).send().await.status, 303);
    });
}

#[on_each_database]
fn nobody_registers(database: Database) {
    without_passwords(database, async |world, _| {
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
        let answer = world.post("/v1/auth/register", &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "registration_closed"));
        assert!(answer.text.contains("sign in with a provider"), "{}", answer.text);
        let browser = Browser::signed_out();
        let page = browser.page(&world, "/console/sign-in").await;
        assert!(!page.contains("/console/register") && page.contains("Sign in with acme"), "{page}");
        let page = browser.page(&world, "/console/register").await;
        assert!(page.contains("Sign-up is disabled.") && !page.contains("<form"), "{page}");
    });
}

#[on_each_database]
fn a_password_proves_nothing(database: Database) {
    without_passwords(database, async |world, provider| {
        let ada = world.user("ada").await;
        let prove = || world.post(PROVE, &json!({"password": PASSWORD})).bearer(&ada.access_token);
        let refused = prove().refused().await;
        assert_eq!((refused.0, refused.1.as_str()), DISABLED);
        let browser = world.browser(ada.id).await;
        let again = browser.page(&world, passkeys::AGAIN).await;
        assert!(
            !again.contains("type=\"password\"") && again.contains("Contact your administrator."),
            "{again}"
        );
        world.connection(ada.id, &provider.issuer, "1").await;
        let again = browser.page(&world, passkeys::AGAIN).await;
        assert!(again.contains("Confirm with acme"), "{again}");
        roles::grant(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
        let session = world.session(ada.id).await;
        world.post(PROVE, &json!({"password": PASSWORD})).bearer(&session.access_token).data().await;
    });
}

#[on_each_database]
fn a_password_is_no_way_in_that_is_left(database: Database) {
    without_passwords(database, async |world, provider| {
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        assert!(jar.who(&world).await.is_some());
        let id = connected(&world, &provider.issuer, "1").await.unwrap();
        let reset = json!({"email": "ada@example.com"});
        world.post("/v1/auth/forgot-password", &reset).data().await;
        let token = world.mailed_token("ada@example.com").await;
        let body: Value = json!({"token": token, "password": PASSWORD, "password_confirmation": PASSWORD});
        world.post("/v1/auth/reset-password", &body).data().await;

        let session = world.session(id).await.access_token;
        let list = world.get("/v1/auth/connections").bearer(&session).data().await;
        let path = format!("/v1/auth/connections/{}", list["connections"][0]["id"].as_str().unwrap());
        let remove = || world.call(Method::DELETE, &path).bearer(&session);
        assert_eq!(remove().refused().await, (409, "last_credential".to_owned()));
        let browser = world.browser(id).await;
        let page = browser.page(&world, "/console/account/connections").await;
        assert!(!page.contains("in addition to your password"), "{page}");
        let (_, added) = passkeys::add(&world, &browser, &[("name", "Laptop")]).await;
        assert!([200, 303].contains(&added.status), "{}", added.text);
        remove().data().await;
    });
}
