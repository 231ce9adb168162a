//! `POST /service/v1/usage` and the books: exactly once, corrections, late events, CloudEvents.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::clock::Time;
use tollkeeper::db::sql;
use tollkeeper::web::route::Listener;

use support::books::{assert_books, change, number, wallet};
use support::http::Call;
use support::on_each_database;
use support::world::{Place, World};

const USAGE: &str = "/service/v1/usage";

struct Scene {
    place: Place,
    key_id: String,
}

async fn scene(world: &World, name: &str) -> Scene {
    let ada = world.user(&format!("ada-{name}")).await;
    let place = world.place(&ada, name).await;
    let (key_id, _) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
    Scene { place, key_id }
}

impl Scene {
    fn event(&self, id: &str, prompt: i64, completion: i64) -> Value {
        json!({"id": id, "source": "s", "time": "2026-03-09T10:00:00Z", "api_key_id": self.key_id, "model": "svc-1",
            "kind": "chat", "prompt_tokens": prompt, "completion_tokens": completion})
    }

    fn correction(&self, id: &str, corrects: &str, prompt: i64, completion: i64) -> Value {
        let mut event = self.event(id, prompt, completion);
        event["corrects"] = json!(corrects);
        event["time"] = json!("2026-03-10T11:00:00Z");
        event
    }

    async fn posted(&self, world: &World) -> i64 {
        let (posted, reserved) = wallet(world, &self.place.organization).await;
        assert_eq!(reserved, 0);
        posted
    }
}

fn with(mut event: Value, field: &str, value: Value) -> Value {
    event[field] = value;
    event
}

/// Returns `accepted`, `duplicate` or the code of the refusal for each event.
fn outcomes(answer: &Value) -> Vec<String> {
    let word = |result: &Value| result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned();
    answer["results"].as_array().unwrap().iter().map(word).collect()
}

async fn report(world: &World, events: &[Value]) -> Vec<String> {
    outcomes(&world.ask(USAGE, &json!({ "events": events })).bare().await)
}

#[on_each_database]
async fn first_event_of_an_id_in_a_batch_counts(world: World) {
    let scene = scene(&world, "Acme").await;
    let events = [
        scene.event("b", 1, 0),
        scene.event("a", 1, 0),
        scene.event("b", 2, 0),
        scene.event("b", 1, 0),
        with(scene.event("b", 2, 0), "source", json!("other")),
        with(scene.event("a", 1, 0), "reservation_id", json!("res_01h2xcejqtf2nbrexx3vqjhp41")),
    ];
    let due = ["accepted", "accepted", "event_conflict", "duplicate", "accepted", "event_conflict"];
    assert_eq!(report(&world, &events).await, due);
    assert_eq!(scene.posted(&world).await, -8_000);
    // A large batch, part of which is already recorded, uses statements of every size.
    let many = |count: i64| (0..count).map(|n| scene.event(&format!("m{n}"), n, 1)).collect::<Vec<_>>();
    assert!(report(&world, &many(300)).await.iter().all(|outcome| outcome == "accepted"));
    let again = report(&world, &many(700)).await;
    assert!(
        again
            .iter()
            .enumerate()
            .all(|(n, outcome)| outcome == if n < 300 { "duplicate" } else { "accepted" })
    );
    assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_events").await, 703);
    assert_books(&world).await;
}

#[on_each_database]
async fn two_servers_count_an_event_once_only(world: World) {
    let (scene, second) = (scene(&world, "Acme").await, scene(&world, "Other").await);
    let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
    other.boot().await.unwrap();
    let service = tollkeeper::api::routes::dispatcher(&other.api, Listener::Service);
    let calls = (0..24).map(|n: usize| {
        let mut events: Vec<_> = (0..30).map(|e| scene.event(&format!("e{e}"), 7, 3)).collect();
        events.extend((0..30).map(|e| second.event(&format!("e{e}"), 7, 3)));
        events.rotate_left(n * 2);
        let entrance = if n.is_multiple_of(2) { &world.service } else { &service };
        let call = Call::new(entrance, Method::POST, USAGE).bearer(world.app.api.service_token.expose());
        call.json(&json!({ "events": events })).bare()
    });
    let answers = join_all(calls).await;
    let all: Vec<_> = answers.iter().flat_map(outcomes).collect();
    assert_eq!(all.iter().filter(|outcome| *outcome == "accepted").count(), 60);
    assert!(all.iter().all(|outcome| outcome == "accepted" || outcome == "duplicate"));
    for scene in [&scene, &second] {
        assert_eq!(scene.posted(&world).await, -30 * (7 * 2_000 + 3 * 6_000));
    }
    assert_books(&world).await;
}

#[on_each_database]
async fn parts_of_a_nano_accumulate_in_their_day(world: World) {
    let scene = scene(&world, "Acme").await;
    let mut config = world.app.config.clone();
    let path = world.data_dir.join("fine.toml");
    let fine = include_str!("../../../catalog/default.toml").replacen("0.000002", "0.0000000004", 1);
    std::fs::write(&path, fine).unwrap();
    config.catalog_file = Some(path);
    let cheap = App::new(config, world.clock.clone()).unwrap();
    cheap.boot().await.unwrap();
    let service = tollkeeper::api::routes::dispatcher(&cheap.api, Listener::Service);
    let send = async |event: Value| {
        let call = Call::new(&service, Method::POST, USAGE).bearer(cheap.api.service_token.expose());
        outcomes(&call.json(&json!({ "events": [event] })).bare().await)
    };
    // Each event costs 0.4 nano: the first two post nothing, and create no ledger entry.
    for (number, posted) in [0, 0, -1, -1, -2].into_iter().enumerate() {
        send(scene.event(&format!("e{number}"), 1, 0)).await;
        assert_eq!(scene.posted(&world).await, posted);
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM ledger_transactions").await, 2);
    send(scene.correction("c", "e0", -1, 0)).await;
    assert_eq!(scene.posted(&world).await, -1);
    assert_books(&world).await;
}

#[on_each_database]
async fn corrections_never_exceed_their_event(world: World) {
    let scene = scene(&world, "Acme").await;
    let ada = world.user("grace").await;
    let (second_key, _) = {
        let body = json!({"name": "second"});
        world
            .join_organization(&scene.place, &ada, tollkeeper::tenants::roles::OrganizationRole::Owner)
            .await;
        world.old_key(&ada, &scene.place, &body).await
    };
    report(&world, &[scene.event("e", 10, 20), scene.event("f", 1, 1)]).await;
    let before = -(10 * 2_000 + 20 * 6_000 + 8_000);
    assert_eq!(scene.posted(&world).await, before);
    let refused = [
        (scene.correction("c", "nobody", -1, 0), "unknown_event"),
        (with(scene.correction("c", "e", -1, 0), "source", json!("other")), "unknown_event"),
        (with(scene.correction("c", "e", -1, 0), "api_key_id", json!(second_key)), "correction_mismatch"),
        (with(scene.correction("c", "e", -1, 0), "model", json!("svc-1-pro")), "correction_mismatch"),
        (with(scene.correction("c", "e", -1, 0), "kind", json!("embeddings")), "correction_mismatch"),
        (scene.correction("c", "e", -11, 0), "correction_too_large"),
        (scene.correction("c", "e", 0, -21), "correction_too_large"),
        (scene.correction("c", "e", 0, 0), "invalid_correction"),
        (scene.correction("c", "e", 1, -1), "invalid_correction"),
        (scene.event("c", -1, 0), "invalid_event"),
    ];
    for (event, code) in refused {
        assert_eq!(report(&world, std::slice::from_ref(&event)).await, [code], "{event}");
    }
    assert_eq!(scene.posted(&world).await, before);
    let first = scene.correction("c1", "e", -4, -20);
    assert_eq!(report(&world, std::slice::from_ref(&first)).await, ["accepted"]);
    assert_eq!(scene.posted(&world).await, before + 4 * 2_000 + 20 * 6_000);
    // A repeated correction is a duplicate, even if it would now be too large. A correction can't be changed
    // or corrected.
    assert_eq!(
        report(&world, &[first, scene.correction("c1", "e", -1, 0)]).await,
        ["duplicate", "event_conflict"]
    );
    assert_eq!(report(&world, &[scene.correction("c2", "c1", -1, 0)]).await, ["invalid_correction"]);
    // Corrections apply in the order of arrival; events of the same batch can be corrected; the id of a
    // refused event can be used for another event.
    let batch = [
        scene.correction("x", "e", -7, 0),
        scene.correction("z", "e", -6, 0),
        scene.correction("y", "e", -1, 0),
        scene.correction("w", "g", -5, 0),
        scene.event("g", 5, 0),
        scene.event("x", 1, 0),
    ];
    let due =
        ["correction_too_large", "accepted", "correction_too_large", "accepted", "accepted", "accepted"];
    assert_eq!(report(&world, &batch).await, due);
    assert_eq!(scene.posted(&world).await, -8_000 - 2_000);
    let text = "SELECT CAST(SUM(requests) AS BIGINT) FROM usage_daily WHERE day = 20521";
    assert_eq!(
        number(&world, text).await,
        4,
        "corrections aren't requests, and belong to the day of the corrected event"
    );
    assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_daily").await, 1);
    // Nothing was prepaid, so the refund reduces the debt.
    assert_eq!(number(&world, "SELECT COUNT(*) FROM credits").await, 0);
    assert_books(&world).await;
}

#[on_each_database]
async fn concurrent_corrections_never_exceed_their_event(world: World) {
    let scene = scene(&world, "Acme").await;
    let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
    other.boot().await.unwrap();
    let service = tollkeeper::api::routes::dispatcher(&other.api, Listener::Service);
    for round in 0..8 {
        let original = format!("e{round}");
        report(&world, &[scene.event(&original, 10, 0)]).await;
        let calls = (0..8).map(|n| {
            let event = scene.correction(&format!("c{round}-{n}"), &original, -4, 0);
            let entrance = if n % 2 == 0 { &world.service } else { &service };
            let call = Call::new(entrance, Method::POST, USAGE).bearer(world.app.api.service_token.expose());
            call.json(&json!({ "events": [event] })).bare()
        });
        let answers = join_all(calls).await;
        let accepted = answers.iter().flat_map(outcomes).filter(|outcome| outcome == "accepted");
        assert_eq!(accepted.count(), 2);
    }
    assert_eq!(scene.posted(&world).await, -8 * 2 * 2_000);
    assert_books(&world).await;
}

/// Refunds of amounts that were paid from credit are available again.
#[on_each_database]
async fn credits_pay_first_and_corrections_refund_them(world: World) {
    let scene = scene(&world, "Acme").await;
    let organization = &scene.place.organization;
    let now = Time::parse("2026-03-10T12:00:00Z").unwrap().unix_ms();
    // 0.01 of which 0.004 expire: the expiring part is used first.
    for (id, nano, until) in
        [("1", 6_000_000, "NULL".to_owned()), ("2", 4_000_000, (now + 1_000_000).to_string())]
    {
        change(
            &world,
            &format!(
                "INSERT INTO credits (id, organization_id, kind, reference, amount_nano, remaining_nano, created_at, expires_at)
                     VALUES ('credit_01h2xcejqtf2nbrexx3vqjhp4{id}', '{organization}', 'purchase', 'r{id}', {nano}, {nano}, {now}, {until})"
            ),
        )
        .await;
        for text in [
            format!(
                "INSERT INTO ledger_transactions (id, organization_id, kind, idempotency_key, happened_at)
                     VALUES ('t{id}', '{organization}', 'credit', 'k{id}', {now})"
            ),
            format!(
                "INSERT INTO ledger_entries (transaction_id, account, organization_id, amount_nano)
                     VALUES ('t{id}', 'wallet', '{organization}', {nano}), ('t{id}', 'purchases', '{organization}', -{nano})"
            ),
            format!("UPDATE wallets SET posted_nano = posted_nano + {nano} WHERE organization_id = '{organization}'"),
        ] {
            change(&world, &text).await;
        }
    }
    let left = async |reference: &str| {
        number(&world, &format!("SELECT remaining_nano FROM credits WHERE reference LIKE '{reference}%'"))
            .await
    };
    report(&world, &[scene.event("a", 1_500, 0)]).await;
    assert_eq!((left("r1").await, left("r2").await), (6_000_000, 1_000_000));
    report(&world, &[scene.event("b", 4_000, 0)]).await;
    assert_eq!((left("r1").await, left("r2").await, scene.posted(&world).await), (0, 0, -1_000_000));
    assert_books(&world).await;
    // 3,000,000 are refunded: 1,000,000 were due, and the rest goes to the credit that paid last.
    report(&world, &[scene.correction("c", "b", -1_500, 0)]).await;
    assert_eq!((left("r1").await, scene.posted(&world).await), (2_000_000, 2_000_000));
    report(&world, &[scene.event("d", 1_001, 0)]).await;
    assert_eq!((left("r1").await, left("r2").await, scene.posted(&world).await), (0, 0, -2_000));
    assert_books(&world).await;
}

#[on_each_database]
async fn late_events_are_billed_in_the_open_month_by_their_day(world: World) {
    let scene = scene(&world, "Acme").await;
    let on = |id: &str, day: &str| with(scene.event(id, 1, 0), "time", json!(format!("{day}T10:00:00Z")));
    report(&world, &[on("a", "2026-02-27"), on("b", "2026-03-09")]).await;
    let months = async || {
        let mut tx = world.app.db.read().await.unwrap();
        let rows: Vec<(i64, i64, i64)> =
            sql("SELECT day, month, requests FROM usage_daily ORDER BY day, month")
                .all(&mut tx)
                .await
                .unwrap();
        rows
    };
    // The organization was created in March: February was never open.
    let (feb, mar) = (20_511, 20_521);
    assert_eq!(months().await, [(feb, 674, 1), (mar, 674, 1)]);
    // March is closed, and this server has cached it as open.
    change(&world, "UPDATE wallets SET open_month = 675").await;
    let late = [on("c", "2026-02-27"), on("d", "2026-03-09"), scene.correction("e", "b", -1, 0)];
    assert_eq!(report(&world, &late).await, ["accepted", "accepted", "accepted"]);
    assert_eq!(months().await, [(feb, 674, 1), (feb, 675, 1), (mar, 674, 1), (mar, 675, 1)]);
    assert_eq!(scene.posted(&world).await, -3 * 2_000);
    assert_books(&world).await;
    assert_eq!(report(&world, &[on("f", "2026-03-09")]).await, ["accepted"]);
    assert_eq!(months().await[3], (mar, 675, 2));
    assert_books(&world).await;
}

fn cloud_event(scene: &Scene, id: &str) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "s", "type": "tollkeeper.usage.v1", "time": "2026-03-09T10:00:00Z",
        "datacontenttype": "application/json; charset=utf-8", "subject": "anything", "traceparent": "extension",
        "data": {"api_key_id": scene.key_id, "model": "svc-1", "kind": "chat", "prompt_tokens": 1, "completion_tokens": 0}})
}

#[on_each_database]
async fn cloud_events_are_events(world: World) {
    let scene = scene(&world, "Acme").await;
    let send = |kind: &str, body: &Value| {
        let call =
            Call::new(&world.service, Method::POST, USAGE).bearer(world.app.api.service_token.expose());
        call.header("content-type", kind).raw(body.to_string().into_bytes())
    };
    let (batch, single) =
        ("application/cloudevents-batch+json; charset=UTF-8", "application/cloudevents+json");
    let one = cloud_event(&scene, "a");
    assert_eq!(outcomes(&send(single, &one).bare().await), ["accepted"]);
    assert_eq!(report(&world, &[scene.event("a", 1, 0)]).await, ["duplicate"], "it is the same event");
    let mut correction = cloud_event(&scene, "c");
    correction["data"]["corrects"] = json!("a");
    correction["data"]["prompt_tokens"] = json!(-1);
    let mut misspelt = cloud_event(&scene, "d");
    misspelt["data"]["promt_tokens"] = json!(1);
    let base64 = with(with(cloud_event(&scene, "d"), "data", Value::Null), "data_base64", json!("e30="));
    let all = json!([
        one,
        cloud_event(&scene, "b"),
        correction,
        misspelt,
        base64,
        with(cloud_event(&scene, "d"), "specversion", json!("0.3")),
        with(cloud_event(&scene, "d"), "type", json!("other")),
        with(cloud_event(&scene, "d"), "time", Value::Null),
        with(cloud_event(&scene, "d"), "datacontenttype", json!("text/xml")),
        json!(7),
    ]);
    let answer = send(batch, &all).bare().await;
    let mut due = vec!["duplicate", "accepted", "accepted"];
    due.extend(["invalid_event"; 7]);
    assert_eq!(outcomes(&answer), due);
    assert_eq!(answer["results"][3]["details"][0]["param"], "data.promt_tokens");
    assert_eq!((&answer["results"][3]["id"], &answer["results"][9]["id"]), (&json!("d"), &Value::Null));
    for (kind, body) in [(batch, json!([])), (batch, one.clone()), (batch, json!(vec![1; 1_001]))] {
        assert_eq!(send(kind, &body).refused().await, (400, "invalid_request".into()));
    }
    assert_eq!(outcomes(&send(single, &json!([one])).bare().await), ["invalid_event"]);
    assert_eq!(scene.posted(&world).await, -2_000);
    assert_books(&world).await;
}

#[on_each_database]
async fn event_with_a_removed_price_is_corrected_as_a_whole(world: World) {
    let scene = scene(&world, "Acme").await;
    report(&world, &[scene.event("e", 10, 20)]).await;
    // The same as after a start with another catalog, because a running server accepts no events without a
    // price.
    let mut tx = world.app.db.write().await.unwrap();
    let table = if world.app.db.is_postgres() { " ON usage_events" } else { "" };
    sql(format!("DROP TRIGGER usage_events_no_update{table}")).execute(&mut tx).await.unwrap();
    sql("UPDATE usage_events SET price_version = 1").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(report(&world, &[scene.correction("c", "e", -1, 0)]).await, ["model_without_price"]);
    assert_eq!(report(&world, &[scene.correction("c", "e", -10, -20)]).await, ["accepted"]);
    assert_eq!(scene.posted(&world).await, 0);
}
