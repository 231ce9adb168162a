//! Traces of refused logins: an audit entry, a metric, and an e-mail to the owner.

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, MINUTE_MS};
use tollkeeper::trail::{self, Filter};

use super::{ATTACKER, HOME, HOME_NEIGHBOUR, WRONG, login, networks, ok, outcome, text, waits, wrong};
use support::on_each_database;
use support::twin::Twin;
use support::world::{PASSWORD, World};

/// SHA-256 of `ada@example.com` and of `nobody@example.com`, by sha256sum.
const ADA_SHA256: &str = "b5fc85e55755f9e0d030a10ab4429b6b2944855f9a0d60077fe832becbc41d72";
const UNKNOWN_SHA256: &str = "e788ea2014693dcdb86767aceb3860a432fc626c6477a6c53016aff40726842b";

/// Returns the audit entries of refused logins, sorted: actor, target, address, reason and hash of the
/// address.
async fn refusals(world: &World) -> Vec<[String; 5]> {
    let filter = Filter { action: "session.refused".into(), limit: 1_000, ..Filter::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let entries = entries.iter().map(|entry| serde_json::to_value(entry).unwrap());
    let of = |entry: Value| {
        let detail = &entry["detail"];
        let fields = [&entry["actor"], &entry["target"], &entry["address"], &detail["reason"]];
        let [actor, target, address, reason] = fields.map(text);
        [actor, target, address, reason, text(&detail["email_sha256"])]
    };
    let mut entries: Vec<_> = entries.map(of).collect();
    entries.sort_unstable();
    entries
}

/// Returns the e-mails to this address with these words in the subject.
async fn mails(world: &World, address: &str, subject: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let subject = format!("Subject: {subject}");
    texts.filter(|text| text.contains(&format!("To: {address}")) && text.contains(&subject)).collect()
}

#[on_each_database]
async fn each_kind_of_refused_login_is_audited(world: World) {
    let ada = world.user("ada").await.id.to_string();
    for _ in 0..10 {
        assert_eq!(outcome(login(&world, "ada", WRONG, ATTACKER)).await, wrong());
    }
    assert_eq!(outcome(login(&world, "ada", PASSWORD, ATTACKER)).await, waits());
    assert_eq!(outcome(login(&world, "Nobody", WRONG, HOME)).await, wrong());
    // Text that isn't an address, such as a password typed into the wrong field, leaves no trace.
    let body = json!({"email": WRONG, "password": WRONG});
    assert_eq!(outcome(world.post("/v1/auth/login", &body).from(HOME_NEIGHBOUR)).await, wrong());
    let anonymous = |target: &str, address: &str, reason: &str, hash: &str| {
        ["anonymous", target, address, reason, hash].map(str::to_owned)
    };
    let mut expected = [
        anonymous(&ada, ATTACKER, "invalid_credentials", ADA_SHA256),
        anonymous(&ada, ATTACKER, "too_many_attempts", ADA_SHA256),
        anonymous("unknown", HOME, "invalid_credentials", UNKNOWN_SHA256),
        anonymous("unknown", HOME_NEIGHBOUR, "invalid_credentials", "null"),
    ];
    expected.sort_unstable();
    assert_eq!(refusals(&world).await, expected);
    // At most one entry per minute is written for each account, network and reason.
    world.clock.advance_ms(MINUTE_MS);
    assert_eq!(outcome(login(&world, "ada", WRONG, ATTACKER)).await, wrong());
    assert_eq!(outcome(login(&world, "ada", WRONG, ATTACKER)).await, waits());
    assert_eq!(refusals(&world).await.len(), 6);
}

#[on_each_database(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")])]
async fn refused_login_of_an_unverified_account_is_audited(world: World) {
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
    let ada = world.post("/v1/auth/register", &body).data().await["user"]["id"].clone();
    let refused = (403, "email_not_verified".to_owned());
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, refused);
    let [entry] = refusals(&world).await.try_into().unwrap();
    let expected = [&text(&ada), &text(&ada), HOME, "email_not_verified", ADA_SHA256];
    assert_eq!(entry, expected.map(str::to_owned));
}

#[on_each_database]
async fn network_trying_many_accounts_leaves_bounded_entries(world: World) {
    let [twin, _] = Twin::both_with_cheap_hashes(&world).await;
    let fail = async |number: usize, from: &str| {
        let body = json!({"email": format!("nobody{number}@example.com"), "password": "x"});
        assert_eq!(outcome(twin.post("/v1/auth/login", &body).from(from)).await, wrong());
    };
    for number in 0..80 {
        fail(number, ATTACKER).await;
    }
    assert_eq!(refusals(&world).await.len(), 60);
    fail(80, HOME).await;
    assert_eq!(refusals(&world).await.len(), 61);
}

#[on_each_database]
async fn logins_are_counted_by_their_result(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    for _ in 0..12 {
        login(&world, "ada", WRONG, ATTACKER).send().await;
    }
    let call = support::http::Call::new(&world.service, http::Method::GET, "/metrics");
    let metrics = call.bearer(world.app.api.service_token.expose()).send().await.text;
    for line in [
        "tollkeeper_logins_total{result=\"success\"} 1\n",
        "tollkeeper_logins_total{result=\"invalid_credentials\"} 10\n",
        "tollkeeper_logins_total{result=\"too_many_attempts\"} 2\n",
        "tollkeeper_logins_total{result=\"email_not_verified\"} 0\n",
        "tollkeeper_logins_total{result=\"password_queue_full\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[on_each_database]
async fn tenth_failure_of_a_day_notifies_the_owner_once(world: World) {
    world.user("ada").await;
    let body = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
    world.post("/v1/auth/register", &body).data().await;
    let notices = async |name: &str| {
        mails(&world, &format!("{name}@example.com"), "Failed sign-in attempts on your account").await
    };
    let fail = async |name: &str, times: usize, from: &str| {
        for _ in 0..times {
            assert_eq!(outcome(login(&world, name, WRONG, from)).await, wrong());
        }
    };
    fail("ada", 5, HOME).await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    fail("ada", 4, ATTACKER).await;
    assert_eq!(notices("ada").await, [""; 0], "nine refusals are below the threshold");
    fail("ada", 1, ATTACKER).await;
    let [mail] = notices("ada").await.try_into().unwrap();
    assert!(mail.contains(ATTACKER) && mail.contains("2026-03-10 12:00 UTC"), "{mail}");
    assert!(!mail.contains("http"), "no link: {mail}");
    for network in networks(2) {
        fail("ada", 10, &network).await;
    }
    assert_eq!(notices("ada").await.len(), 1, "once a day");
    world.clock.advance_ms(DAY_MS);
    fail("ada", 10, ATTACKER).await;
    assert_eq!(notices("ada").await.len(), 2);
    // No e-mail is sent to an unverified address, or to an address without an account.
    fail("eve", 10, ATTACKER).await;
    fail("nobody", 10, ATTACKER).await;
    assert_eq!(notices("eve").await, [""; 0]);
    assert_eq!(notices("nobody").await, [""; 0]);
}

#[on_each_database]
async fn login_from_a_new_network_notifies_the_owner(world: World) {
    world.user("ada").await;
    let body = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
    world.post("/v1/auth/register", &body).data().await;
    let notices =
        async |name: &str| mails(&world, &format!("{name}@example.com"), "New sign-in to your account").await;
    for name in ["ada", "eve"] {
        assert_eq!(outcome(login(&world, name, PASSWORD, HOME)).await, ok());
    }
    assert_eq!(notices("ada").await, [""; 0], "the first login has no earlier one to compare with");
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME_NEIGHBOUR)).await, ok());
    assert_eq!(notices("ada").await, [""; 0], "the same network");
    for name in ["ada", "eve"] {
        assert_eq!(outcome(login(&world, name, PASSWORD, "2001:db8::7")).await, ok());
    }
    let [mail] = notices("ada").await.try_into().unwrap();
    assert!(mail.contains("2001:db8::7") && mail.contains("2026-03-10 12:00 UTC"), "{mail}");
    assert!(!mail.contains("http"), "no link: {mail}");
    assert_eq!(outcome(login(&world, "ada", PASSWORD, "2001:db8::8")).await, ok());
    assert_eq!(notices("ada").await.len(), 1);
    assert_eq!(notices("eve").await, [""; 0], "the address isn't verified");
}
