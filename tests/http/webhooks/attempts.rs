//! Attempts: retries, receivers that fail, leases and replicas.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};
use tollkeeper::webhooks::sending::{LEASE_MS, send_due};

use super::{act, cause, deliveries, hook, key_hook, read, run_on, send};
use support::receiver::{NEVER, OK, Receiver};
use support::twin::Twin;
use support::world::{World, id};
use support::{Database, on_each_database};

#[on_each_database]
fn event_is_sent_once_with_what_its_headers_promise(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        let key = cause(&world, &ada, &place, "one").await;
        let [waiting] = deliveries(&world, &ada, &hook, "").await.try_into().unwrap();
        send(&world).await;
        send(&world).await;
        let [request] = receiver.received().try_into().unwrap();
        assert_eq!(request.path, "/events");
        assert_eq!(request.headers["content-type"], "application/json");
        assert_eq!(request.headers["webhook-timestamp"], "1773144000");
        assert_eq!(
            request.body,
            format!(
                "{{\"type\":\"api_key.created\",\"timestamp\":\"2026-03-10T12:00:00.000Z\",\"data\":{{\
                 \"organization_id\":\"{}\",\"project_id\":\"{}\",\"api_key_id\":\"{key}\"}}}}",
                place.organization, place.project
            )
        );
        let [sent] = deliveries(&world, &ada, &hook, "?state=succeeded").await.try_into().unwrap();
        assert_eq!(
            sent,
            json!({"id": waiting["id"], "event_id": request.id(), "event_type": "api_key.created",
                "state": "succeeded", "attempts": 1, "created_at": "2026-03-10T12:00:00.000Z",
                "next_attempt_at": null, "last_attempt_at": "2026-03-10T12:00:00.000Z", "outcome": "succeeded",
                "response_status": 204, "duration_ms": sent["duration_ms"]})
        );
        assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("pending"), &json!(0)));
        assert!(deliveries(&world, &ada, &hook, "?state=failed").await.is_empty());
    });
}

/// Its outcome doesn't reveal whether a name exists in the server's network.
#[on_each_database]
async fn internal_name_looks_like_an_unknown_one(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut outcomes = Vec::new();
    for url in ["https://localhost/", "https://no-such-host.invalid/"] {
        let hook = hook(&world, &ada, &place, url, &["api_key.created"]).await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        send(&world).await;
        let [row] = deliveries(&world, &ada, &hook, "").await.try_into().unwrap();
        let told = ["state", "attempts", "outcome", "response_status"].map(|name| row[name].clone());
        outcomes.push(told);
    }
    assert_eq!(outcomes[0], [json!("pending"), json!(1), json!("not_reachable"), Value::Null]);
    assert_eq!(outcomes[0], outcomes[1]);
}

#[on_each_database]
fn failed_event_is_attempted_ten_times_and_again_on_request(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start("HTTP/1.1 500 Internal Server Error\r\n\r\n").await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        cause(&world, &ada, &place, "one").await;
        send(&world).await;
        let [row] = deliveries(&world, &ada, &hook, "?state=pending").await.try_into().unwrap();
        assert_eq!((&row["outcome"], &row["response_status"]), (&json!("refused"), &json!(500)));
        assert_eq!(read(&world, &ada, &hook).await["failing_since"], "2026-03-10T12:00:00.000Z");
        // The retry isn't sent early: it waits for at least 4 of 5 seconds.
        world.clock.advance_ms(3 * SECOND_MS);
        send(&world).await;
        assert_eq!(receiver.received().len(), 1);
        for wait_ms in [
            3 * SECOND_MS,
            6 * MINUTE_MS,
            36 * MINUTE_MS,
            144 * MINUTE_MS,
            6 * HOUR_MS,
            12 * HOUR_MS,
            17 * HOUR_MS,
            24 * HOUR_MS,
            29 * HOUR_MS,
        ] {
            let before = receiver.received().len();
            world.clock.advance_ms(wait_ms);
            send(&world).await;
            assert_eq!(receiver.received().len(), before + 1, "after {wait_ms}");
        }
        world.clock.advance_ms(2 * DAY_MS);
        send(&world).await;
        let ada = world.session(ada.id).await;
        let received = receiver.take();
        assert_eq!(received.len(), 10);
        let ids: BTreeSet<_> = received.iter().map(|request| (request.id(), &request.body)).collect();
        assert_eq!(ids.len(), 1, "every attempt has the same id and body");
        let times: BTreeSet<_> =
            received.iter().map(|request| &request.headers["webhook-timestamp"]).collect();
        assert_eq!(times.len(), 10);
        let [failed] = deliveries(&world, &ada, &hook, "?state=failed").await.try_into().unwrap();
        assert_eq!((&failed["attempts"], &failed["next_attempt_at"]), (&json!(10), &json!(null)));

        receiver.answer(OK);
        let again = act(&world, &ada, &format!("{}/deliveries/{}/redeliver", hook.path, id(&failed))).await;
        assert_eq!((&again["state"], &again["id"]), (&json!("pending"), &failed["id"]));
        send(&world).await;
        let [request] = receiver.take().try_into().unwrap();
        assert_eq!(request.id(), received[0].id());
        let [sent] = deliveries(&world, &ada, &hook, "").await.try_into().unwrap();
        assert_eq!((&sent["state"], &sent["attempts"]), (&json!("succeeded"), &json!(11)));
        assert_eq!(read(&world, &ada, &hook).await["failing_since"], json!(null));
    });
}

#[on_each_database]
fn failed_events_since_a_time_are_delivered_again(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        for name in ["one", "two", "three"] {
            cause(&world, &ada, &place, name).await;
            world.clock.advance_ms(MINUTE_MS);
        }
        let put = |body: &Value| world.call(Method::PUT, &hook.path).bearer(&ada.access_token).json(body);
        put(&json!({"enabled": false})).data().await;
        put(&json!({"enabled": true})).data().await;
        assert_eq!(deliveries(&world, &ada, &hook, "?state=failed").await.len(), 3);
        let since = json!({"since": "2026-03-10T12:01:00Z"});
        let redeliver = || world.post(&format!("{}/redeliver", hook.path), &since).bearer(&ada.access_token);
        assert_eq!(redeliver().data().await, json!({"deliveries": 2}));
        assert_eq!(redeliver().data().await, json!({"deliveries": 0}));
        send(&world).await;
        assert_eq!(receiver.received().len(), 2);
    });
}

#[on_each_database]
fn receiver_says_when_it_is_back(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start("HTTP/1.1 429 Too Many Requests\r\nretry-after: 3600\r\n\r\n").await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        cause(&world, &ada, &place, "one").await;
        send(&world).await;
        let [row] = deliveries(&world, &ada, &hook, "").await.try_into().unwrap();
        assert_eq!(
            (&row["response_status"], &row["next_attempt_at"]),
            (&json!(429), &json!("2026-03-10T13:00:00.000Z"))
        );
    });
}

#[on_each_database]
fn gone_receiver_is_switched_off_and_its_owners_are_told(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start("HTTP/1.1 410 Gone\r\n\r\n").await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        for name in ["one", "two", "three", "four"] {
            cause(&world, &ada, &place, name).await;
        }
        send(&world).await;
        assert!(receiver.received().len() <= 2, "at most two were in progress");
        let after = read(&world, &ada, &hook).await;
        assert_eq!((&after["enabled"], &after["disabled_reason"]), (&json!(false), &json!("gone")));
        assert_eq!(deliveries(&world, &ada, &hook, "?state=failed").await.len(), 4);
        let mails = mails(&world).await;
        assert_eq!(mails.len(), 1, "{mails:?}");
        assert!(mails[0].contains("Webhook disabled: Acme"), "{}", mails[0]);
        assert!(mails[0].contains("is gone (status 410)"), "{}", mails[0]);
        let log = format!("{}/audit-log?action=webhook.disabled", place.organization_path());
        let log = world.get(&log).bearer(&ada.access_token).data().await;
        assert_eq!((&log["total"], &log["entries"][0]["actor"]["id"]), (&json!(1), &json!("system")));
    });
}

/// Sends the e-mails, and returns those about webhooks.
async fn mails(world: &support::world::World) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let files = std::fs::read_dir(world.data_dir.join("mail")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    texts.filter(|text| text.contains("webhook")).collect()
}

#[on_each_database]
fn five_days_of_failures_switch_it_off(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\n\r\n").await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        for (name, days, enabled) in [("one", 4, true), ("two", 1, true), ("three", 1, false)] {
            let ada = world.session(ada.id).await;
            cause(&world, &ada, &place, name).await;
            send(&world).await;
            let found = read(&world, &ada, &hook).await;
            assert_eq!(found["enabled"], enabled, "{name}: {found}");
            world.clock.advance_ms(days * DAY_MS);
        }
        let ada = world.session(ada.id).await;
        assert_eq!(read(&world, &ada, &hook).await["disabled_reason"], "failing");
        assert!(mails(&world).await[0].contains("for five days"));
    });
}

#[on_each_database]
fn slow_receiver_holds_up_no_other_and_a_dead_replica_loses_nothing(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (slow, quick) = (Receiver::start(NEVER).await, Receiver::start(OK).await);
        let slow_hook = key_hook(&world, &ada, &place, &slow).await;
        key_hook(&world, &ada, &place, &quick).await;
        for name in ["one", "two", "three", "four", "five"] {
            cause(&world, &ada, &place, name).await;
        }
        let webhooks = world.app.webhooks.clone();
        let sender = tokio::spawn(async move { send_due(&webhooks).await });
        quick.wait_for(5).await;
        slow.wait_for(2).await;
        assert_eq!(slow.received().len(), 2, "at most two deliveries to a webhook are in progress");
        // The process dies.
        sender.abort();
        sender.await.unwrap_err();
        slow.take();
        slow.answer(OK);
        send(&world).await;
        assert_eq!(slow.received().len(), 0, "the interrupted deliveries are leased, and take both slots");
        world.clock.advance_ms(LEASE_MS);
        send(&world).await;
        let ids: BTreeSet<_> = slow.received().iter().map(|request| request.id().to_owned()).collect();
        assert_eq!((ids.len(), slow.received().len()), (5, 5));
        assert_eq!(deliveries(&world, &ada, &slow_hook, "?state=succeeded").await.len(), 5);
        // Deliveries that were received right before the process died may be received twice.
        let ids: BTreeSet<_> = quick.received().iter().map(|request| request.id().to_owned()).collect();
        assert_eq!(ids.len(), 5);
    });
}

#[on_each_database]
fn two_replicas_send_each_event_once(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        for number in 0..20 {
            cause(&world, &ada, &place, &format!("key {number}")).await;
        }
        let [one, two] = Twin::both(&world).await;
        let (first, second) = tokio::join!(send_due(&one.app.webhooks), send_due(&two.app.webhooks));
        first.unwrap();
        second.unwrap();
        // Either run may have ended while the other held both places.
        send(&world).await;
        let ids: BTreeSet<_> = receiver.received().iter().map(|request| request.id().to_owned()).collect();
        assert_eq!((ids.len(), receiver.received().len()), (20, 20));
        assert_eq!(deliveries(&world, &ada, &hook, "?state=succeeded&page_size=100").await.len(), 20);
    });
}

#[on_each_database]
fn rotated_secret_signs_beside_the_previous_one_for_a_day(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        let hook = key_hook(&world, &ada, &place, &receiver).await;
        let rotated = act(&world, &ada, &format!("{}/rotate", hook.path)).await;
        assert_eq!(
            (&rotated["id"], &rotated["previous_secret_ends_at"]),
            (&json!(hook.id), &json!("2026-03-11T12:00:00.000Z"))
        );
        let secret = rotated["secret"].as_str().unwrap().to_owned();
        assert_ne!(secret, hook.secret);
        let expected = |request: &support::receiver::Received, secrets: &[&str]| {
            let time = request.headers["webhook-timestamp"].parse::<i64>().unwrap();
            let signed = secrets.iter().map(|secret| sign(secret, request.id(), time, &request.body));
            signed.collect::<Vec<_>>().join(" ")
        };
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        send(&world).await;
        let [request] = receiver.take().try_into().unwrap();
        assert_eq!(request.headers["webhook-signature"], expected(&request, &[&secret, &hook.secret]));
        assert_eq!(request.event(), "webhook.test");
        world.clock.advance_ms(DAY_MS);
        let ada = world.session(ada.id).await;
        act(&world, &ada, &format!("{}/test", hook.path)).await;
        send(&world).await;
        let [request] = receiver.take().try_into().unwrap();
        assert_eq!(request.headers["webhook-signature"], expected(&request, &[&secret]));
        assert_eq!(read(&world, &ada, &hook).await["previous_secret_ends_at"], json!(null));
    });
}

/// Returns a signature according to Standard Webhooks, without using the tested code.
fn sign(secret: &str, id: &str, time: i64, body: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    format!("v1,{}", STANDARD.encode(ring::hmac::sign(&key, format!("{id}.{time}.{body}").as_bytes())))
}
