//! Limits on the e-mails that a user may cause or receive within an hour, and the order in which e-mails are
//! sent.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::db::sql;
use tollkeeper::jobs::sweep::sweep;

use tollkeeper::mail::bounds::Bounds;
use tollkeeper::mail::store::mail_counters::{Sender, admit};
use tollkeeper::mail::store::outbox::Template;

use support::books::number;
use support::http::{Answer, Call};
use support::twin::Twin;
use support::world::{PASSWORD, Place, TestUser, World};
use support::{Database, on_each_database};

/// Counts the e-mails in the outbox to this address.
async fn count_queued(world: &World, address: &str) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM outbox WHERE email = $1").bind(address).one(&mut tx).await.unwrap();
    count
}

/// Returns the metric of notices dropped for this reason.
async fn suppressed(world: &World, reason: &str) -> String {
    let call = Call::new(&world.service, Method::GET, "/metrics");
    let metrics = call.bearer(world.app.api.service_token.expose()).send().await.text;
    let start = format!("tollkeeper_mails_suppressed_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
}

async fn invite(world: &World, by: &str, organization: &str, address: &str) -> Answer {
    let path = format!("/v1/organizations/{organization}/invitations");
    world.post(&path, &json!({ "email": address })).bearer(by).send().await
}

/// Adds a user to the project and removes them again.
async fn add_and_remove(world: &World, owner: &TestUser, place: &Place, user: &TestUser) {
    let path = format!("{}/members", place.project_path());
    let body = json!({"user_id": user.id, "role": "viewer"});
    world.post(&path, &body).bearer(&owner.access_token).data().await;
    let path = format!("{path}/{}", user.id);
    world.call(Method::DELETE, &path).bearer(&owner.access_token).data().await;
}

fn assert_rate_limited(answer: &Answer, wait_ms: i64) {
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), (wait_ms / 1000).to_string(), "{}", answer.text);
}

#[on_each_database]
async fn recipient_gets_twenty_notices_an_hour_and_the_rest_is_dropped(world: World) {
    let (mallory, bob) = (world.user("mallory").await, world.user("bob").await);
    let place = world.place(&mallory, "Acme").await;
    for _ in 0..25 {
        add_and_remove(&world, &mallory, &place, &bob).await;
    }
    assert_eq!(count_queued(&world, "bob@example.com").await, 20);
    assert_eq!(suppressed(&world, "recipient").await, "5");
    // Other recipients are not affected.
    let carol = world.user("carol").await;
    add_and_remove(&world, &mallory, &place, &carol).await;
    assert_eq!(count_queued(&world, "carol@example.com").await, 1);
    world.clock.advance_ms(HOUR_MS);
    let access_token = world.token(TokenKind::Access, mallory.id, mallory.session_id, 60).await;
    add_and_remove(&world, &TestUser { access_token, ..mallory }, &place, &bob).await;
    assert_eq!(count_queued(&world, "bob@example.com").await, 21);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "3")])]
async fn repeated_password_changes_do_not_flood_a_mailbox(world: World) {
    let ada = world.user("ada").await;
    let passwords = [PASSWORD, "Violet-Kettle-Orbit-9"];
    for number in 0..5 {
        let (current, new) = (passwords[number % 2], passwords[(number + 1) % 2]);
        let body =
            json!({"current_password": current, "new_password": new, "new_password_confirmation": new});
        world.post("/v1/auth/change-password", &body).bearer(&ada.access_token).data().await;
    }
    assert_eq!(count_queued(&world, "ada@example.com").await, 3);
    assert_eq!(suppressed(&world, "recipient").await, "2");
    // The limit doesn't apply to password resets.
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    assert_eq!(count_queued(&world, "ada@example.com").await, 4);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "3")])]
async fn invitations_to_one_address_are_limited_across_senders(world: World) {
    world.user("bob").await;
    let mut refusals = Vec::new();
    for address in ["bob@example.com", "nobody@example.com"] {
        for number in 0..3 {
            let sender = world.user(&format!("s{number}.{}", &address[..3])).await;
            let organization = world.organization(&sender, "Acme").await;
            // All these spellings are the same mailbox.
            let (name, domain) = address.split_once('@').unwrap();
            let written = match number {
                0 => address.to_owned(),
                1 => address.to_uppercase(),
                _ => format!("\"{name}+tag\"@{domain}"),
            };
            let sent = invite(&world, &sender.access_token, &organization, &written).await;
            assert_eq!(sent.status, 200, "{}", sent.text);
        }
        let sender = world.user(&format!("last.{}", &address[..3])).await;
        let organization = world.organization(&sender, "Acme").await;
        world.clock.advance_ms(MINUTE_MS);
        let refused = invite(&world, &sender.access_token, &organization, address).await;
        assert_rate_limited(&refused, 59 * MINUTE_MS);
        assert_eq!(open_invitations(&world, &organization).await, 0, "nothing was done");
        refusals.push(refused.json());
    }
    assert_eq!(refusals[0], refusals[1], "the responses don't reveal whether the account exists");
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "2")])]
async fn invitations_sent_again_are_limited_like_the_first(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let invited = invite(&world, &ada.access_token, &organization, "bob@example.com").await.json();
    let id = invited["data"]["invitation_id"].as_str().unwrap();
    let path = format!("/v1/organizations/{organization}/invitations/{id}/resend");
    let resend = || world.call(Method::POST, &path).bearer(&ada.access_token).send();
    world.clock.advance_ms(MINUTE_MS);
    assert_eq!(resend().await.status, 200);
    let token = world.mailed_token("bob@example.com").await;
    assert_rate_limited(&resend().await, 59 * MINUTE_MS);
    // The refused request changed nothing: the guest's link still works.
    world.user("bob").await;
    let accepted = world.call(Method::POST, "/invitations/accept").form(&[("token", &token)]).send().await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
}

async fn open_invitations(world: &World, organization: &str) -> i64 {
    let text = "SELECT COUNT(*) FROM invitations WHERE organization_id = $1 AND ended_at IS NULL";
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) = sql(text).bind(organization).one(&mut tx).await.unwrap();
    count
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR", "4")])]
async fn mails_are_limited_by_user_including_their_keys(world: World) {
    let (mallory, ada, bob) = (world.user("mallory").await, world.user("ada").await, world.user("bob").await);
    let (place, theirs) = (world.place(&mallory, "Acme").await, world.place(&ada, "Acme").await);
    let mut callers = vec![mallory.access_token.clone()];
    for name in ["one", "two", "three"] {
        callers.push(world.key(&mallory, &place, &json!({ "name": name })).await.1);
    }
    for (number, caller) in callers.iter().enumerate() {
        let sent = invite(&world, caller, &place.organization, &format!("g{number}@example.com")).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    for caller in &callers {
        let refused = invite(&world, caller, &place.organization, "more@example.com").await;
        assert_rate_limited(&refused, HOUR_MS);
    }
    // Notices are dropped, but the action itself succeeds.
    add_and_remove(&world, &mallory, &place, &bob).await;
    assert_eq!(count_queued(&world, "bob@example.com").await, 0);
    assert_eq!(suppressed(&world, "account").await, "1");
    let sent = invite(&world, &ada.access_token, &theirs.organization, "more@example.com").await;
    assert_eq!(sent.status, 200, "{}", sent.text);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_ADDRESS_HOUR", "3")])]
async fn mails_are_limited_by_client_address(world: World) {
    let register = |name: &str, address: &str| {
        let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
        world.post("/v1/auth/register", &body).from(address).send()
    };
    for (name, address) in [("one", "2001:db8::1"), ("two", "2001:db8::ffff"), ("three", "2001:db8:0:0:9::")]
    {
        assert_eq!(register(name, address).await.status, 200);
    }
    assert_rate_limited(&register("four", "2001:db8::1").await, HOUR_MS);
    assert_eq!(
        register("four", "2001:db8:0:1::1").await.status,
        200,
        "the refused registration created no account"
    );
    let mut refusals = Vec::new();
    for name in ["one", "nobody"] {
        let body = json!({"email": format!("{name}@example.com")});
        let refused = world.post("/v1/auth/forgot-password", &body).from("2001:db8::2").send().await;
        assert_rate_limited(&refused, HOUR_MS);
        refusals.push(refused.json());
        world.post("/v1/auth/forgot-password", &body).from("192.0.2.7").data().await;
    }
    assert_eq!(refusals[0], refusals[1]);
}

#[on_each_database]
fn nothing_is_counted_while_limits_are_off(database: Database) {
    let settings =
        [("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "1"), ("TOLLKEEPER_LIMITS__ENABLED", "false")];
    database.run(&settings, async |world| {
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        let place = world.place(&ada, "Acme").await;
        for _ in 0..3 {
            add_and_remove(&world, &ada, &place, &bob).await;
        }
        assert_eq!((count_queued(&world, "bob@example.com").await, counters(&world).await), (3, 0));
    });
}

async fn counters(world: &World) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM mail_counters").one(&mut tx).await.unwrap();
    count
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__PASSWORD_RESETS_PER_HOUR", "1")])]
async fn counters_expire_after_an_hour_even_if_the_clock_is_set_back(world: World) {
    let ask = || world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).send();
    assert_eq!(ask().await.status, 200);
    sweep(&world.app).await.unwrap();
    assert_eq!(counters(&world).await, 2, "the address and the recipient");
    assert_rate_limited(&ask().await, HOUR_MS);
    world.clock.advance_ms(-2 * MINUTE_MS);
    assert_eq!(ask().await.status, 200, "the count is in the future");
    world.clock.advance_ms(HOUR_MS + 1);
    sweep(&world.app).await.unwrap();
    assert_eq!(counters(&world).await, 0);
}

/// Creates this many organizations, each with its own owner.
async fn senders(world: &World, count: usize) -> Vec<(TestUser, String)> {
    let mut senders = Vec::new();
    for number in 0..count {
        let sender = world.user(&format!("sender{number}")).await;
        let organization = world.organization(&sender, "Acme").await;
        senders.push((sender, organization));
    }
    senders
}

#[on_each_database]
fn two_replicas_never_exceed_a_limit(database: Database) {
    let settings = [
        ("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "9"),
        ("TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR", "7"),
        ("TOLLKEEPER_LIMITS__ORGANIZATIONS_PER_PERSON", "40"),
    ];
    database.run(&settings, async |world| {
        let twins = Twin::both(&world).await;
        let send = async |senders: &[(TestUser, String)], address: &dyn Fn(usize) -> String| {
            let calls = senders.iter().enumerate().map(|(number, (sender, organization))| {
                let path = format!("/v1/organizations/{organization}/invitations");
                let call = twins[number % 2].post(&path, &json!({"email": address(number)}));
                call.bearer(&sender.access_token).send()
            });
            let statuses: Vec<_> = join_all(calls).await.iter().map(|answer| answer.status).collect();
            let count = |status| statuses.iter().filter(|found| **found == status).count();
            (count(200), count(429))
        };
        let many = senders(&world, 40).await;
        assert_eq!(send(&many, &|_| "victim@example.com".to_owned()).await, (9, 31));
        assert_eq!(count_queued(&world, "victim@example.com").await, 9);
        let one = world.user("one").await;
        let mut theirs = Vec::new();
        for number in 0..40 {
            theirs.push((one.clone(), world.organization(&one, &format!("O{number}")).await));
        }
        assert_eq!(send(&theirs, &|number| format!("guest{number}@example.com")).await, (7, 33));
    });
}

/// Returns three addresses in the order of their hashes, which is the order of their counters.
fn in_order() -> [String; 3] {
    let mut addresses = ["ada", "bob", "eve"].map(|name| format!("{name}@example.com"));
    addresses.sort_by_key(|address| {
        ring::digest::digest(&ring::digest::SHA256, address.as_bytes()).as_ref().to_vec()
    });
    addresses
}

#[on_each_database]
async fn mails_to_the_same_recipients_do_not_deadlock(world: World) {
    if !world.app.db.is_postgres() {
        // SQLite has one writer at a time.
        return;
    }
    let [low, middle, high] = in_order();
    let admit = |address: &str, recipients: &[&String]| {
        let (db, now) = (world.app.db.clone(), world.clock.now());
        let bounds = Bounds::from_limits(&world.app.config.limits);
        let sender = Sender { account: None, address: Some(address.parse().unwrap()) };
        let recipients = recipients.iter().map(|recipient| (*recipient).clone()).collect();
        async move {
            let mut tx = db.write().await.unwrap();
            let template = Template::OrganizationDeleted;
            admit(&mut tx, bounds.as_ref(), &sender, template, recipients, now).await.map(|_| tx)
        }
    };
    // The middle counter is locked until both writers wait. If they locked counters in the order of their
    // lists, each would hold a counter that the other needs.
    let holder = admit("192.0.2.1", &[&middle]).await.unwrap();
    let writers = [
        tokio::spawn(admit("192.0.2.2", &[&low, &middle, &high])),
        tokio::spawn(admit("192.0.2.3", &[&high, &middle, &low])),
    ];
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while number(&world, waiting).await < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    holder.commit().await.unwrap();
    let mut ended = Vec::new();
    for writer in writers {
        ended.push(async { writer.await.unwrap().unwrap().commit().await.unwrap() });
    }
    join_all(ended).await;
}

#[on_each_database]
async fn mails_with_links_are_sent_first(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for number in 0..12 {
        let sent =
            invite(&world, &ada.access_token, &place.organization, &format!("g{number}@example.com")).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    world.clock.advance_ms(1_000);
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    let bob = json!({"email": "bob@example.com", "password": PASSWORD, "username": "bob"});
    world.post("/v1/auth/register", &bob).data().await;
    let words = async |most| {
        let mut tx = world.app.db.write().await.unwrap();
        let now = world.clock.now();
        let mails = tollkeeper::mail::store::outbox::claim(&mut tx, most, now, now.plus_ms(2 * MINUTE_MS))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let mut words: Vec<_> = mails.iter().map(|mail| mail.template.as_str()).collect();
        words.sort_unstable();
        words
    };
    assert_eq!(words(3).await, ["invitation", "reset_password", "verify_email"]);
    assert_eq!(words(100).await, ["invitation"; 11]);
    assert_eq!(words(100).await, [""; 0], "they are leased");
    // E-mails that wait for a retry don't delay other e-mails.
    invite(&world, &ada.access_token, &place.organization, "late@example.com").await;
    assert_eq!(words(8).await, ["invitation"]);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__MAILS_PER_ACCOUNT_HOUR", "1")])]
async fn refusal_names_the_limit(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    invite(&world, &ada.access_token, &organization, "bob@example.com").await;
    let refused = invite(&world, &ada.access_token, &organization, "carol@example.com").await;
    let error: Value = refused.json()["error"].clone();
    assert_eq!(
        error["message"],
        "Your account has reached the maximum of 1 e-mails per hour; retry after the delay in the \
         `retry-after` header."
    );
    assert_eq!(error["type"], "rate_limit_error");
}
