//! The initial credit limit. A user's first organization gets it once, after the user's address is verified.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::db::sql;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use support::books::{assert_books, change, number};
use support::http::Call;
use support::transcript::CATALOG;
use support::twin::Twin;
use support::world::{CREDIT_LIMIT, NO_CREDIT_SETTING, PASSWORD, Place, TestUser, World, id};
use support::{Database, on_each_database};

const NANO: i64 = 1_000_000_000;

/// Returns the credit limit of an organization, in whole dollars.
async fn credit(world: &World, organization: &str) -> i64 {
    number(world, &format!("SELECT credit_limit_nano FROM wallets WHERE organization_id = '{organization}'"))
        .await
        / NANO
}

async fn organizations(world: &World, owner: &TestUser, names: [&str; 3]) -> Vec<String> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(world.organization(owner, name).await);
        world.clock.advance_ms(1);
    }
    ids
}

async fn credits(world: &World, organizations: &[String]) -> Vec<i64> {
    let mut limits = Vec::new();
    for organization in organizations {
        limits.push(credit(world, organization).await);
    }
    limits
}

async fn delete(world: &World, owner: &TestUser, organization: &str) {
    let path = format!("/v1/organizations/{organization}");
    world.call(Method::DELETE, &path).bearer(&owner.access_token).data().await;
}

/// Registers a user who hasn't confirmed their address yet.
async fn register(world: &World, name: &str) -> TestUser {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    world.post("/v1/auth/register", &body).data().await;
    let mut tx = world.app.db.read().await.unwrap();
    let user = tollkeeper::accounts::store::users::by_email(&mut tx, &format!("{name}@example.com"))
        .await
        .unwrap()
        .unwrap();
    world.session(user.id).await
}

/// The means of verifying an address.
#[derive(Clone, Copy, Debug)]
enum Verification {
    Endpoint,
    Page,
    Reset,
}

async fn verify(world: &World, name: &str, way: Verification) {
    let address = format!("{name}@example.com");
    if matches!(way, Verification::Reset) {
        tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
        world.clock.advance_ms(1);
        world.post("/v1/auth/forgot-password", &json!({ "email": address })).data().await;
    }
    let token = world.mailed_token(&address).await;
    let new = "Violet-Kettle-Orbit-9";
    match way {
        Verification::Endpoint => {
            world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
        }
        Verification::Page => {
            let form = [("token", token.as_str()), ("password", PASSWORD)];
            let page = world.call(Method::POST, "/verify-email").form(&form).send().await;
            assert_eq!(page.status, 200, "{}", page.text);
        }
        Verification::Reset => {
            let body = json!({"token": token, "password": new, "password_confirmation": new});
            world.post("/v1/auth/reset-password", &body).data().await;
        }
    }
}

#[on_each_database]
async fn three_organizations_of_one_person_have_one_credit_limit(world: World) {
    let ada = world.user("ada").await;
    let three = organizations(&world, &ada, ["A", "B", "C"]).await;
    assert_eq!(credits(&world, &three).await, [100, 0, 0]);
    // Deleting the organization and creating another one gives no further credit.
    delete(&world, &ada, &three[0]).await;
    assert_eq!(credit(&world, &world.organization(&ada, "A").await).await, 0);
    // Another user gets their own credit.
    let bob = world.user("bob").await;
    assert_eq!(credit(&world, &world.organization(&bob, "A").await).await, 100);
}

#[on_each_database]
fn further_organizations_get_the_configured_limit(database: Database) {
    let settings =
        [("TOLLKEEPER_BILLING__CREDIT_LIMIT", "25"), ("TOLLKEEPER_BILLING__FURTHER_CREDIT_LIMIT", "3")];
    database.run(&settings, async |world| {
        let ada = world.user("ada").await;
        let three = organizations(&world, &ada, ["A", "B", "C"]).await;
        assert_eq!(credits(&world, &three).await, [25, 3, 3]);
    });
}

#[on_each_database]
async fn every_verification_of_the_address_gives_credit(world: World) {
    for (name, way) in
        [("ada", Verification::Endpoint), ("bob", Verification::Page), ("cara", Verification::Reset)]
    {
        let maker = register(&world, name).await;
        let three = organizations(&world, &maker, ["A", "B", "C"]).await;
        assert_eq!(credits(&world, &three).await, [0, 0, 0], "{way:?}");
        // The user's oldest existing organization gets the credit.
        delete(&world, &maker, &three[0]).await;
        verify(&world, name, way).await;
        assert_eq!(credits(&world, &three).await, [0, 100, 0], "{way:?}");
        let maker = world.session(maker.id).await;
        assert_eq!(credit(&world, &world.organization(&maker, "D").await).await, 0, "{way:?}");
    }
    assert_books(&world).await;
}

#[on_each_database]
async fn verified_user_gets_credit_with_the_first_organization(world: World) {
    let ada = register(&world, "ada").await;
    let gone = world.organization(&ada, "Gone").await;
    delete(&world, &ada, &gone).await;
    verify(&world, "ada", Verification::Endpoint).await;
    assert_eq!(credit(&world, &gone).await, 0);
    let two = [world.organization(&ada, "A").await, world.organization(&ada, "B").await];
    assert_eq!(credits(&world, &two).await, [100, 0]);
    // A second verification changes nothing.
    delete(&world, &ada, &two[0]).await;
    verify(&world, "ada", Verification::Reset).await;
    assert_eq!(credits(&world, &two).await, [100, 0]);
}

#[on_each_database]
async fn calls_are_allowed_after_the_verification(world: World) {
    let ada = register(&world, "ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let ask = async || {
        let body = json!({"credential": key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
                          "estimated_prompt_tokens": 10});
        world.ask("/service/v1/authorize", &body).bare().await
    };
    let before = ask().await;
    assert_eq!((&before["allowed"], &before["code"]), (&json!(false), &json!("insufficient_quota")));
    verify(&world, "ada", Verification::Endpoint).await;
    let after = ask().await;
    assert_eq!(after["allowed"], true, "{after}");

    // The call's money is reserved, so the organization can't be deleted until the call has ended.
    let path = place.organization_path();
    let refused = world.call(Method::DELETE, &path).bearer(&ada.access_token).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "calls_in_progress"), "{}", refused.text);
    assert_eq!(refused.header("x-should-retry"), "false");
    let reservation = after["reservation"]["id"].as_str().or(after["reservation_id"].as_str()).unwrap();
    let path = format!("/service/v1/reservations/{reservation}");
    let release =
        Call::new(&world.service, Method::DELETE, &path).bearer(world.app.api.service_token.expose());
    assert_eq!(release.send().await.status, 200);
    delete(&world, &ada, &place.organization).await;
    assert_books(&world).await;
}

#[on_each_database]
async fn concurrent_verification_and_creation_give_credit_once(world: World) {
    let twins = Twin::both(&world).await;
    for round in 0..6 {
        let name = format!("maker{round}");
        let maker = register(&world, &name).await;
        let token = world.mailed_token(&format!("{name}@example.com")).await;
        let first = world.organization(&maker, "First").await;
        let mut calls = Vec::new();
        for number in 0..8 {
            let body = json!({"name": format!("N{number}")});
            let call = twins[number % 2].post("/v1/organizations", &body);
            calls.push(call.bearer(&maker.access_token).send());
            if number == 3 {
                calls.push(twins[1].post("/v1/auth/verify-email", &json!({ "token": token })).send());
                let path = format!("/v1/organizations/{first}");
                let call = twins[0].call(Method::DELETE, &path);
                calls.push(call.bearer(&maker.access_token).send());
            }
        }
        for answer in join_all(calls).await {
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
        let text = "SELECT COUNT(*) FROM wallets w WHERE w.credit_limit_nano > 0
                        AND (w.organization_id = $1 OR w.organization_id IN
                             (SELECT id FROM organizations WHERE created_by = $2))";
        let mut tx = world.app.db.read().await.unwrap();
        let (given,): (i64,) = sql(text).bind(&first).bind(maker.id).one(&mut tx).await.unwrap();
        assert_eq!(given, 1, "round {round}");
    }
}

#[on_each_database]
async fn one_of_many_concurrent_first_organizations_has_credit(world: World) {
    let twins = Twin::both(&world).await;
    for round in 0..4 {
        let maker = world.user(&format!("maker{round}")).await;
        let calls = (0..16).map(|number| {
            let body = json!({"name": format!("N{number}")});
            twins[number % 2].post("/v1/organizations", &body).bearer(&maker.access_token).send()
        });
        let made: Vec<_> = join_all(calls).await.iter().map(|answer| id(&answer.json()["data"])).collect();
        assert_eq!(credits(&world, &made).await.iter().sum::<i64>(), 100, "round {round}");
    }
}

/// Requests a chat call of `svc-1-pro` with an empty prompt, which can cost `max_tokens` x 0.00003. Returns
/// the decision.
async fn ask(world: &World, key: &str, max_tokens: i64) -> Value {
    let body = json!({"credential": key, "operation": "chat", "model": "svc-1-pro", "max_tokens": max_tokens,
                      "estimated_prompt_tokens": 0});
    world.ask("/service/v1/authorize", &body).bare().await
}

/// Returns the credit limit that the API shows.
async fn told_limit(world: &World, owner: &TestUser, organization: &str) -> Value {
    let path = format!("/v1/organizations/{organization}/limits");
    world.get(&path).bearer(&owner.access_token).data().await["credit_limit"].clone()
}

/// Creates an organization with an API key.
async fn with_key(world: &World, owner: &TestUser, name: &str) -> (Place, String) {
    let place = world.place(owner, name).await;
    let (_, key) = world.key(owner, &place, &json!({"name": "k"})).await;
    (place, key)
}

#[on_each_database]
fn organization_has_no_credit_with_a_catalog_of_the_operator(database: Database) {
    database.run(&[CATALOG, NO_CREDIT_SETTING], async |world| {
        let ada = world.user("ada").await;
        let (place, key) = with_key(&world, &ada, "Acme").await;
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 0);
        let body = json!({"credential": key, "operation": "chat", "model": "chat-a", "max_tokens": 1});
        let refused = world.ask("/service/v1/authorize", &body).bare().await;
        assert_eq!(
            (&refused["allowed"], &refused["code"]),
            (&json!(false), &json!("insufficient_quota")),
            "{refused}"
        );
    });
}

#[on_each_database]
fn first_organization_may_spend_five_on_the_demo(database: Database) {
    database.run(&[NO_CREDIT_SETTING], async |world| {
        let ada = world.user("ada").await;
        let (place, key) = with_key(&world, &ada, "Acme").await;
        world.clock.advance_ms(1);
        let (_, other_key) = with_key(&world, &ada, "Second").await;
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 5);
        // 20 x 8,192 x 0.00003 = 4.9152, and 2,826 x 0.00003 = 0.08478, 4.99998 in total.
        world.clock.advance_ms(1);
        for call in 0..20 {
            // The model allows 5 concurrent calls, so the calls run one after another.
            let allowed = ask(&world, &key, 8_192).await;
            assert_eq!(allowed["allowed"], true, "{call}: {allowed}");
            report(&world, &allowed, call, 8_192).await;
        }
        let allowed = ask(&world, &key, 2_826).await;
        assert_eq!(allowed["allowed"], true, "{allowed}");
        report(&world, &allowed, 20, 2_826).await;
        let refused = ask(&world, &key, 1).await;
        assert_eq!(refused["code"], "insufficient_quota", "{refused}");
        // The user's second organization has no credit.
        let refused = ask(&world, &other_key, 1).await;
        assert_eq!(refused["code"], "insufficient_quota", "{refused}");
        let path = format!("{}/limits", place.organization_path());
        let limits = world.get(&path).bearer(&ada.access_token).data().await;
        assert_eq!(limits["credit_limit"], 5);
        assert_eq!(limits["balance"]["available"], -4.99998, "{limits}");
        assert_books(&world).await;
    });
}

/// Reports the usage of a call that was allowed.
async fn report(world: &World, allowed: &Value, call: i64, completion_tokens: i64) {
    let event = json!({"id": format!("call-{call}"), "source": "test", "time": world.clock.now().to_string(),
                       "api_key_id": allowed["api_key_id"], "model": "svc-1-pro", "kind": "chat", "prompt_tokens": 0,
                       "completion_tokens": completion_tokens, "reservation_id": allowed["reservation"]["id"]});
    let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
}

#[on_each_database]
fn demo_credit_ends_with_a_catalog_of_the_operator_on_every_replica(database: Database) {
    database.run(&[NO_CREDIT_SETTING], async |world| {
        let ada = world.user("ada").await;
        let (place, key) = with_key(&world, &ada, "Acme").await;
        assert_eq!(ask(&world, &key, 1).await["allowed"], true);
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 5);
        // Another replica puts an operator's catalog in force.
        let mut config = world.app.config.clone();
        let text = std::fs::read_to_string("catalog/default.toml").unwrap();
        let own = world.data_dir.join("own.toml");
        std::fs::write(&own, text.replace("General chat, Chinese and English", "Ours")).unwrap();
        config.catalog_file = Some(own);
        let other = App::new(config, world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        assert!(!other.catalog.is_demo());
        // The replica with the demo takes over this catalog like any other.
        world.catch_up().await;
        tollkeeper::catalog::activation::reload(&world.app.catalogs).await.unwrap();
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 0);
        assert_eq!(ask(&world, &key, 1).await["code"], "insufficient_quota");
        // A limit that an operator sets still counts.
        let id = tollkeeper::ids::OrganizationId::parse(&place.organization).unwrap();
        let limit = Nano::parse("0.5").unwrap();
        tollkeeper::billing::wallets::set_credit_limit(&world.app.billing, id, limit, &Trail::operator())
            .await
            .unwrap();
        assert_eq!(ask(&world, &key, 1).await["allowed"], true);
    });
}

#[on_each_database]
fn configured_credit_counts_on_the_demo_too(database: Database) {
    database.run(&[(CREDIT_LIMIT, "0")], async |world| {
        let ada = world.user("ada").await;
        let (place, key) = with_key(&world, &ada, "Acme").await;
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 0);
        assert_eq!(ask(&world, &key, 1).await["code"], "insufficient_quota");
    });
}

#[on_each_database]
fn limit_that_an_operator_sets_counts_on_the_demo_too(database: Database) {
    database.run(&[NO_CREDIT_SETTING], async |world| {
        let ada = world.user("ada").await;
        let (place, key) = with_key(&world, &ada, "Acme").await;
        let id = tollkeeper::ids::OrganizationId::parse(&place.organization).unwrap();
        let set = async |limit: &str| {
            let (billing, limit, trail) =
                (&world.app.billing, Nano::parse(limit).unwrap(), Trail::operator());
            let set = tollkeeper::billing::wallets::set_credit_limit(billing, id, limit, &trail);
            set.await.unwrap().before.to_string()
        };
        assert_eq!(set("0").await, "5");
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 0);
        assert_eq!(ask(&world, &key, 1).await["code"], "insufficient_quota");
        assert_eq!(set("7").await, "0");
        assert_eq!(told_limit(&world, &ada, &place.organization).await, 7);
    });
}

#[on_each_database]
async fn mailbox_has_one_first_credit(world: World) {
    let mallory = register(&world, "mallory").await;
    let first = world.organization(&mallory, "First").await;
    verify(&world, "mallory", Verification::Endpoint).await;
    assert_eq!(credit(&world, &first).await, 100);
    for (name, address) in [
        ("mallory1", "mallory+1@example.com"),
        ("mallory2", "Mallory+x@EXAMPLE.com"),
        ("mallory3", "\"mallory\"@example.com"),
    ] {
        let body = json!({"email": address, "password": PASSWORD, "username": name});
        world.post("/v1/auth/register", &body).data().await;
        let mut tx = world.app.db.read().await.unwrap();
        let folded = tollkeeper::kernel::addresses::fold(address);
        let user = tollkeeper::accounts::store::users::by_email(&mut tx, &folded).await.unwrap().unwrap();
        drop(tx);
        let maker = world.session(user.id).await;
        // An organization gets no credit if it is created before the verification, nor if it is created
        // afterward.
        let before = world.organization(&maker, "Before").await;
        let token = world.mailed_token(address).await;
        world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
        let maker = world.session(user.id).await;
        let after = world.organization(&maker, "After").await;
        assert_eq!(credits(&world, &[before, after]).await, [0, 0], "{address}");
    }
    let ada = world.user("ada").await;
    assert_eq!(credit(&world, &world.organization(&ada, "Hers").await).await, 100);
}

/// Returns the migration's statement that marks the existing creators of organizations.
fn marking(is_postgres: bool) -> &'static str {
    let step = if is_postgres {
        include_str!("../../crates/db/migrations/postgres/0013_bounds.sql")
    } else {
        include_str!("../../crates/db/migrations/sqlite/0013_bounds.sql")
    };
    &step[step.find("UPDATE users").unwrap()..]
}

#[on_each_database]
async fn existing_creators_keep_their_limits_and_get_no_more(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let before = world.organization(&ada, "Before").await;
    change(&world, "UPDATE users SET credit_granted_at = NULL").await;
    change(&world, "UPDATE wallets SET credit_limit_nano = 40000000000").await;
    change(&world, marking(world.app.db.is_postgres()).trim().trim_end_matches(';')).await;
    let after = world.organization(&ada, "After").await;
    assert_eq!(credits(&world, &[before, after]).await, [40, 0]);
    assert_eq!(credit(&world, &world.organization(&bob, "His").await).await, 100);
}

/// Returns the migration's statement that records the mailboxes of earlier credits.
fn noting(is_postgres: bool) -> &'static str {
    let step = if is_postgres {
        include_str!("../../crates/db/migrations/postgres/0040_first_credits.sql")
    } else {
        include_str!("../../crates/db/migrations/sqlite/0040_first_credits.sql")
    };
    &step[step.find("INSERT INTO first_credits").unwrap()..]
}

#[on_each_database]
async fn mailboxes_of_earlier_credits_have_had_theirs(world: World) {
    for name in ["ada+shop", "+carl", "bob"] {
        let maker = world.user(name).await;
        assert_eq!(credit(&world, &world.organization(&maker, "Before").await).await, 100, "{name}");
    }
    change(&world, "DELETE FROM first_credits").await;
    change(&world, noting(world.app.db.is_postgres()).trim().trim_end_matches(';')).await;
    for (name, expected) in [("ada", 0), ("ada+x", 0), ("bob+x", 0), ("carl", 100), ("dora", 100)] {
        let maker = world.user(name).await;
        assert_eq!(credit(&world, &world.organization(&maker, "After").await).await, expected, "{name}");
    }
}
