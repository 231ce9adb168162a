//! The ends of reservations, and refusals because of insufficient funds.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::credits;
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::ids::OrganizationId;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use super::edges::{Scene, Server, scene};
use support::books::{assert_books, wallet};
use support::http::Call;
use support::on_each_database;
use support::world::{START, World};

/// The price of a call of svc-1, in nano: 10 x 0.000002 + 100 x 0.000006.
const CALL_NANO: i64 = 620_000;

impl Scene {
    async fn reserve(&self, world: &World) -> Value {
        let body = json!({"credential": self.key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
            "estimated_prompt_tokens": 10});
        let decision = world.ask("/service/v1/authorize", &body).bare().await;
        assert_eq!(decision["allowed"], true, "{decision}");
        decision["reservation"]["id"].clone()
    }
}

#[on_each_database]
async fn only_an_accepted_event_captures_a_reservation_once(world: World) {
    let scene = scene(&world).await;
    let (organization, here) = (&scene.place.organization, Server::of(&world));
    let first = scene.reserve(&world).await;
    let with = |id: &str, more: &[(&str, Value)]| {
        let more = [more, &[("reservation_id", first.clone())]].concat();
        scene.event(id, START, &more)
    };
    let refused = [
        (with("a", &[("model", json!("nobody"))]), "unknown_model"),
        (with("a", &[("kind", json!("embeddings"))]), "wrong_kind"),
        (with("a", &[("time", json!("2026-03-10T12:05:00.001Z"))]), "event_in_future"),
        (with("a", &[("corrects", json!("x")), ("prompt_tokens", json!(-1))]), "unknown_event"),
        (with("a", &[("prompt_tokens", json!(-1))]), "invalid_event"),
    ];
    for (event, code) in refused {
        assert_eq!(scene.report(&here, &event).await, code);
        assert_eq!(wallet(&world, organization).await, (0, CALL_NANO), "{code}: the call goes on");
    }
    // Neither a repeated nor a conflicting event ends the reservation.
    let plain = scene.event("p", START, &[]);
    assert_eq!(scene.report(&here, &plain).await, "accepted");
    assert_eq!(scene.report(&here, &with("p", &[])).await, "event_conflict");
    assert_eq!(scene.report(&here, &plain).await, "duplicate");
    assert_eq!(wallet(&world, organization).await, (-2_000, CALL_NANO));
    // Two events name one reservation. Both count, and the first one captures it.
    let second = scene.reserve(&world).await;
    assert_eq!(scene.report(&here, &with("b", &[])).await, "accepted");
    assert_eq!(scene.report(&here, &with("c", &[])).await, "accepted");
    assert_eq!(
        wallet(&world, organization).await,
        (-6_000, CALL_NANO),
        "the other call's reservation remains"
    );
    // Two events in one batch name the reservation. After that, the reservation can't be released or
    // extended.
    let both = json!({"events": [
        scene.event("d", START, &[("reservation_id", second.clone())]),
        scene.event("e", START, &[("reservation_id", second.clone())]),
    ]});
    let results = world.ask("/service/v1/usage", &both).bare().await;
    assert!(results["results"].as_array().unwrap().iter().all(|result| result["status"] == "accepted"));
    assert_eq!(wallet(&world, organization).await, (-10_000, 0));
    for (method, end) in [(Method::DELETE, ""), (Method::POST, "/extend")] {
        let path = format!("/service/v1/reservations/{}{end}", second.as_str().unwrap());
        let call = Call::new(&world.service, method, &path).bearer(world.app.api.service_token.expose());
        assert_eq!(call.refused().await, (404, "reservation_not_found".to_owned()));
    }
    assert_books(&world).await;
}

#[on_each_database]
async fn reservation_survives_the_deletion_of_its_key_and_project(world: World) {
    let scene = scene(&world).await;
    let (organization, here) = (&scene.place.organization, Server::of(&world));
    let mut reservations = Vec::new();
    for _ in 0..4 {
        reservations.push(scene.reserve(&world).await);
    }
    let [by_key, by_project, by_organization, nobody_s] = &reservations[..] else { unreachable!() };
    let capture = |id: &str, reservation: &Value| {
        scene.event(id, START, &[("reservation_id", reservation.clone()), ("prompt_tokens", json!(0))])
    };
    let whole = scene.place.organization_path();
    let paths = [
        format!("{}/api-keys/{}", scene.place.project_path(), scene.key_id),
        scene.place.project_path(),
        whole.clone(),
    ];
    for (number, (path, reservation)) in paths.iter().zip([by_key, by_project, by_organization]).enumerate() {
        let answer = world.call(Method::DELETE, path).bearer(&scene.owner).send().await;
        // An organization can't be deleted while its calls are in progress.
        let expected = if *path == whole { (409, "calls_in_progress") } else { (200, "") };
        assert_eq!((answer.status, answer.code().as_str()), expected, "{}", answer.text);
        let event = capture(&format!("e{number}"), reservation);
        assert_eq!(scene.report(&here, &event).await, "accepted", "{path}");
        let left = 3 - i64::try_from(number).unwrap();
        assert_eq!(wallet(&world, organization).await, (0, left * CALL_NANO), "{path}");
    }
    world.clock.advance_ms(600_000);
    assert_eq!(expire_due(&world.app.billing).await.unwrap(), 1);
    assert_eq!(wallet(&world, organization).await, (0, 0));
    world.call(Method::DELETE, &whole).bearer(&scene.owner).data().await;
    // The usage is still counted.
    let late = scene.event("late", START, &[("reservation_id", nobody_s.clone())]);
    assert_eq!(scene.report(&here, &late).await, "accepted");
    assert_eq!(wallet(&world, organization).await, (-2_000, 0));
    assert_books(&world).await;
    assert!(audit::check(&world.app.billing, None).await.unwrap().is_clean());
}

#[on_each_database(&[("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0")])]
async fn refusal_names_what_ran_out(world: World) {
    let scene = scene(&world).await;
    let refusal = async || {
        let body = json!({"credential": scene.key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
            "estimated_prompt_tokens": 10});
        let no = world.ask("/service/v1/authorize", &body).bare().await;
        assert_eq!((&no["status"], &no["code"]), (&json!(402), &json!("insufficient_quota")), "{no}");
        no["message"].as_str().unwrap().to_owned()
    };
    // No payment was ever made.
    let message = refusal().await;
    for part in ["0.00062 USD", "0 USD available"] {
        assert!(message.contains(part), "{message}");
    }
    // Other calls reserve all paid money.
    let organization = OrganizationId::parse(&scene.place.organization).unwrap();
    let new = credits::NewCredit {
        organization_id: organization,
        amount: Nano::parse("0.01").unwrap(),
        reference: "payment 1".to_owned(),
        is_grant: false,
        expires_at: None,
    };
    credits::add(&world.app.billing, &new, &Trail::operator()).await.unwrap();
    let body = json!({"credential": scene.key, "operation": "chat", "model": "svc-1", "max_tokens": 1_600,
        "estimated_prompt_tokens": 0});
    assert_eq!(world.ask("/service/v1/authorize", &body).bare().await["allowed"], true);
    let message = refusal().await;
    assert!(message.contains("0.0004 USD available"), "{message}");
}
