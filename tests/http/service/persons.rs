//! Users' calls: authorized by their role, and billed like a key's.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::audit;

use support::books::{assert_books, wallet};
use support::http::Call;
use support::on_each_database;
use support::world::{Place, START, TestUser, World};

const USAGE: &str = "/service/v1/usage";

struct Scene {
    ada: TestUser,
    place: Place,
    key_id: String,
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    Scene { ada, place, key_id }
}

impl Scene {
    fn event(&self, id: &str) -> Value {
        json!({"id": id, "source": "s", "time": START, "project_id": self.place.project, "user_id": self.ada.id,
            "model": "svc-1", "kind": "chat", "prompt_tokens": 10, "completion_tokens": 100})
    }

    fn of_key(&self, id: &str) -> Value {
        let mut event = with(self.event(id), "api_key_id", json!(self.key_id));
        event.as_object_mut().unwrap().retain(|name, _| name != "project_id" && name != "user_id");
        event
    }
}

fn with(mut event: Value, field: &str, value: Value) -> Value {
    event[field] = value;
    event
}

async fn results(world: &World, events: &[Value]) -> Vec<Value> {
    world.ask(USAGE, &json!({ "events": events })).bare().await["results"].as_array().unwrap().clone()
}

/// Returns `accepted`, `duplicate` or the code of the refusal for each event.
async fn report(world: &World, events: &[Value]) -> Vec<String> {
    let word = |result: &Value| result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned();
    results(world, events).await.iter().map(word).collect()
}

/// 10 x 0.000002 + 100 x 0.000006 = 0.00062 per call.
#[on_each_database]
async fn call_of_a_user_is_billed(world: World) {
    let scene = scene(&world).await;
    let place = &scene.place;
    let question = json!({"credential": scene.ada.access_token, "operation": "chat", "model": "svc-1",
        "max_tokens": 100, "estimated_prompt_tokens": 10,
        "organization_id": place.organization, "project_id": place.project});
    let decision = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!(decision["allowed"], true, "{decision}");
    assert_eq!((&decision["api_key_id"], &decision["project_id"]), (&Value::Null, &json!(place.project)));
    assert_eq!(decision["user_id"], json!(scene.ada.id));
    assert_eq!(wallet(&world, &place.organization).await, (0, 620_000));
    // The event gets exactly the ids of the decision.
    let mut event = scene.event("e1");
    for field in ["project_id", "user_id"] {
        event[field] = decision[field].clone();
    }
    event["reservation_id"] = decision["reservation"]["id"].clone();
    assert_eq!(report(&world, &[event.clone()]).await, ["accepted"]);
    assert_eq!(wallet(&world, &place.organization).await, (-620_000, 0));
    assert_eq!(report(&world, &[event.clone()]).await, ["duplicate"]);

    // The same event with another user, another project or a key is a conflict.
    let bob = world.user("bob").await;
    let sibling = world.project(&scene.ada, &place.organization, "Sibling").await;
    let others = [
        with(event.clone(), "user_id", json!(bob.id)),
        with(event.clone(), "project_id", json!(sibling)),
        with(scene.of_key("e1"), "reservation_id", event["reservation_id"].clone()),
    ];
    assert_eq!(report(&world, &others).await, ["event_conflict"; 3]);

    // The same event as a CloudEvent.
    let mut data = event.clone();
    data.as_object_mut().unwrap().retain(|name, _| !["id", "source", "time"].contains(&name.as_str()));
    let cloud = json!({"specversion": "1.0", "type": "tollkeeper.usage.v1", "id": "e1", "source": "s", "time": START,
        "data": data});
    let call = Call::new(&world.service, Method::POST, USAGE).bearer(world.app.api.service_token.expose());
    let call = call.header("content-type", "application/cloudevents+json").raw(cloud.to_string());
    assert_eq!(call.bare().await["results"][0]["status"], "duplicate");

    // A correction must contain the same user.
    let back = |mut event: Value, id: &str| {
        event["id"] = json!(id);
        event["corrects"] = json!("e1");
        event["reservation_id"] = Value::Null;
        with(with(event, "prompt_tokens", json!(0)), "completion_tokens", json!(-50))
    };
    let wrong = [
        back(with(event.clone(), "user_id", json!(bob.id)), "c1"),
        back(with(event.clone(), "project_id", json!(sibling)), "c2"),
        back(scene.of_key("x"), "c3"),
    ];
    assert_eq!(report(&world, &wrong).await, ["correction_mismatch"; 3]);
    assert_eq!(report(&world, &[back(event.clone(), "c4")]).await, ["accepted"]);
    assert_eq!(wallet(&world, &place.organization).await, (-320_000, 0));
    assert_books(&world).await;
    let report = audit::check(&world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.drifts);
}

#[on_each_database]
async fn reports_distinguish_users_and_keys(world: World) {
    let scene = scene(&world).await;
    let (place, user_id) = (&scene.place, json!(scene.ada.id));
    assert_eq!(report(&world, &[scene.event("e1"), scene.of_key("e2")]).await, ["accepted"; 2]);
    let token = &scene.ada.access_token;
    let usage = world.get(&format!("{}/usage", place.project_path())).bearer(token).data().await;
    let rows = usage["usage"].as_array().unwrap();
    let identity =
        |row: &Value| (row["api_key_id"].clone(), row["api_key_name"].clone(), row.get("user_id").cloned());
    let due = [
        (Value::Null, json!("ada"), Some(user_id.clone())),
        (json!(scene.key_id), json!("k"), Some(Value::Null)),
    ];
    assert_eq!(rows.iter().map(identity).collect::<Vec<_>>(), due, "{usage}");
    assert_eq!(usage["total"]["chat"]["amount"], json!(0.00124));

    let path = format!("{}/billing/usage?group_by=api_key", place.organization_path());
    let usage = world.get(&path).bearer(token).data().await;
    let rows = usage["usage"].as_array().unwrap();
    let identity = |row: &Value| (row["api_key_id"].clone(), row.get("user_id").cloned());
    assert_eq!(
        rows.iter().map(identity).collect::<Vec<_>>(),
        [(Value::Null, Some(user_id)), (json!(scene.key_id), Some(Value::Null))],
        "{usage}"
    );
    assert!(rows[0].as_object().unwrap().contains_key("api_key_id"), "the field was requested");
    let by_day =
        world.get(&format!("{}/billing/usage", place.organization_path())).bearer(token).data().await;
    assert_eq!(by_day["usage"].as_array().unwrap().len(), 1);
    assert_eq!(by_day["usage"][0].get("user_id"), None);

    let text = world.get(&format!("{path}&format=csv")).bearer(token).send().await.text;
    let (head, lines) = text.split_once("\r\n").unwrap();
    assert!(
        head.starts_with("date,api_key_id,chat_requests") && head.ends_with(",currency,user_id"),
        "{head}"
    );
    let lines: Vec<_> = lines.lines().collect();
    assert!(
        lines[0].starts_with("2026-03-10,,1,") && lines[0].ends_with(&format!(",{}", scene.ada.id)),
        "{text}"
    );
    assert!(
        lines[1].starts_with(&format!("2026-03-10,{},1,", scene.key_id)) && lines[1].ends_with(","),
        "{text}"
    );

    let project = world.get(&place.project_path()).bearer(token).data().await;
    assert_eq!(project["usage"], json!({"tokens": 220, "requests": 2}));
    let key = format!("{}/api-keys/{}", place.project_path(), scene.key_id);
    let key = world.get(&key).bearer(token).data().await;
    assert_eq!(key["usage"]["total_requests"], 1);
}

#[on_each_database]
async fn event_names_a_key_or_a_user_in_a_project(world: World) {
    let scene = scene(&world).await;
    let without = |name: &str| {
        let mut event = scene.event("e");
        event.as_object_mut().unwrap().remove(name);
        event
    };
    let mut neither = without("project_id");
    neither.as_object_mut().unwrap().remove("user_id");
    let key = json!(scene.key_id);
    let mut both = scene.of_key("e");
    both["user_id"] = json!(scene.ada.id);
    let events = [
        neither,
        without("user_id"),
        without("project_id"),
        with(scene.event("e"), "api_key_id", key),
        both,
        with(scene.event("e"), "user_id", json!("ada")),
    ];
    let details: Vec<_> = results(&world, &events)
        .await
        .iter()
        .map(|result| {
            assert_eq!(result["code"], "invalid_event", "{result}");
            result["details"]
                .as_array()
                .unwrap()
                .iter()
                .map(|d| format!("{} {}", d["param"], d["code"]))
                .collect::<Vec<_>>()
        })
        .collect();
    let due = [
        vec![r#""api_key_id" "required""#],
        vec![r#""user_id" "required""#],
        vec![r#""project_id" "required""#],
        vec![r#""project_id" "mutually_exclusive""#],
        vec![r#""user_id" "mutually_exclusive""#],
        vec![r#""user_id" "invalid_id""#],
    ];
    assert_eq!(details, due);
}

#[on_each_database]
async fn late_usage_of_a_deleted_project_counts(world: World) {
    let scene = scene(&world).await;
    let unknown_id = |prefix: &str| json!(format!("{prefix}_01h2xcejqtf2nbrexx3vqjhp41"));
    let refused = [
        with(scene.event("e1"), "project_id", unknown_id("proj")),
        with(scene.event("e2"), "user_id", unknown_id("user")),
    ];
    let answers = results(&world, &refused).await;
    let refusals: Vec<_> = answers.iter().map(|answer| (&answer["code"], &answer["retryable"])).collect();
    assert_eq!(
        refusals,
        [(&json!("unknown_project"), &json!(false)), (&json!("unknown_user"), &json!(false))]
    );

    let token = &scene.ada.access_token;
    world.call(Method::DELETE, &scene.place.project_path()).bearer(token).data().await;
    assert_eq!(report(&world, &[scene.event("e3")]).await, ["accepted"]);
    assert_eq!(wallet(&world, &scene.place.organization).await, (-620_000, 0));
    assert_books(&world).await;
}

#[on_each_database]
async fn cached_user_costs_no_more_than_a_key(world: World) {
    let scene = scene(&world).await;
    report(&world, &[scene.event("p0")]).await;
    report(&world, &[scene.of_key("k0")]).await;
    let mut costs = Vec::new();
    for event in [scene.event("p1"), scene.of_key("k1")] {
        let before = world.app.db.statement_count();
        assert_eq!(report(&world, &[event]).await, ["accepted"]);
        costs.push(world.app.db.statement_count() - before);
    }
    assert_eq!(costs[0], costs[1]);
}

#[on_each_database]
async fn usage_before_the_user_existed_is_refused(world: World) {
    let scene = scene(&world).await;
    // Clocks may differ by at most five minutes.
    for (id, event) in [("k", scene.of_key("k")), ("p", scene.event("p"))] {
        let at = |number: i64, time: &str| {
            with(with(event.clone(), "id", json!(format!("{id}{number}"))), "time", json!(time))
        };
        let events = [
            at(1, "2026-03-10T11:55:00.000Z"),
            at(2, "2026-03-10T11:54:59.999Z"),
            at(3, "2026-02-01T00:00:00Z"),
        ];
        assert_eq!(report(&world, &events).await, ["accepted", "event_before_key", "event_before_key"]);
        let result = results(&world, &events[1..2]).await.remove(0);
        assert_eq!(result["retryable"], false);
        let message = result["message"].as_str().unwrap();
        for time in ["2026-03-10T11:54:59.999Z", "2026-03-10T12:00:00.000Z"] {
            assert!(message.contains(time), "{message}");
        }
    }
    assert_books(&world).await;
}
