//! The call log and the performance report (docs/contract/calls.md).

use serde_json::{Value, json};
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};

use support::on_each_database;
use support::world::{Place, TestUser, World};

/// An organization with two projects and a key in each. `Acme` has calls of two models.
struct Scene {
    ada: TestUser,
    place: Place,
    other: Place,
    keys: [String; 2],
}

async fn report(world: &World, id: &str, more: Value) {
    let mut event = json!({"id": id, "source": "vllm-1", "time": world.clock.now().to_string(), "model": "svc-1",
        "kind": "chat"});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let project = world.project(&ada, &place.organization, "Other").await;
    let other = Place { organization: place.organization.clone(), project };
    let (one, _) = world.key(&ada, &place, &json!({"name": "One"})).await;
    let (two, _) = world.key(&ada, &other, &json!({"name": "Two"})).await;
    let keys = [one, two];
    for (n, key) in [(0, 0), (1, 0), (2, 1), (3, 0), (4, 1)] {
        world.clock.advance_ms(MINUTE_MS);
        let model = if n == 3 { "svc-1-turbo" } else { "svc-1" };
        let usage =
            json!({"api_key_id": keys[key], "model": model, "prompt_tokens": 10 + n, "completion_tokens": n});
        report(world, &format!("e-{n}"), usage).await;
    }
    Scene { ada, place, other, keys }
}

impl Scene {
    async fn page(&self, world: &World, path: &str) -> (Vec<String>, Value) {
        let data = world.get(path).bearer(&self.ada.access_token).data().await;
        let calls = data["calls"].as_array().unwrap();
        let events = calls.iter().map(|call| call["event_id"].as_str().unwrap().to_owned()).collect();
        (events, data["next"].clone())
    }
}

#[on_each_database]
async fn calls_are_listed_newest_first(world: World) {
    let scene = scene(&world).await;
    let all = format!("{}/calls", scene.place.organization_path());
    let (events, next) = scene.page(&world, &all).await;
    assert_eq!((events.join(" "), next), ("e-4 e-3 e-2 e-1 e-0".into(), Value::Null));
    let (events, next) = scene.page(&world, &format!("{all}?limit=2")).await;
    assert_eq!(events, ["e-4", "e-3"]);
    let (events, next) = scene.page(&world, &format!("{all}?limit=2&after={}", next.as_str().unwrap())).await;
    assert_eq!(events, ["e-2", "e-1"]);
    let (events, next) = scene.page(&world, &format!("{all}?limit=2&after={}", next.as_str().unwrap())).await;
    assert_eq!((events, next), (vec!["e-0".to_owned()], Value::Null));
    let of_project = format!("{}/calls", scene.other.project_path());
    assert_eq!(scene.page(&world, &of_project).await.0, ["e-4", "e-2"]);
}

#[on_each_database]
async fn filters_select_calls(world: World) {
    let scene = scene(&world).await;
    let now = world.clock.now();
    let [one, two] = &scene.keys;
    let at = |minutes: i64| now.plus_ms(-minutes * MINUTE_MS).to_string();
    for (query, expected) in [
        (format!("api_key_id={one}"), "e-3 e-1 e-0"),
        (format!("api_key_id={two}&limit=1"), "e-4"),
        (format!("user_id={}", scene.ada.id), ""),
        // A call has only one of both.
        (format!("api_key_id={one}&user_id={}", scene.ada.id), ""),
        ("model=svc-1-turbo".to_owned(), "e-3"),
        ("model=unknown".to_owned(), ""),
        ("operation=chat".to_owned(), "e-4 e-3 e-2 e-1 e-0"),
        ("operation=embeddings".to_owned(), ""),
        ("ended=completed&code=rate_limited".to_owned(), ""),
        ("min_duration_ms=1".to_owned(), ""),
        ("end_user=grace".to_owned(), ""),
        ("request_id=req_01kfz3v9xee8tb2m6h0q5w7r4n".to_owned(), ""),
        (format!("from={}", at(2)), "e-4 e-3 e-2"),
        (format!("to={}", at(2)), "e-1 e-0"),
        (format!("from={}&to={}", at(3), at(1)), "e-2 e-1"),
    ] {
        let path = format!("{}/calls?{query}", scene.place.organization_path());
        assert_eq!(scene.page(&world, &path).await.0.join(" "), expected, "{query}");
    }
    for (query, code) in [
        ("ended=never", "unknown_value"),
        ("after=call_1", "invalid_id"),
        ("limit=101", "out_of_range"),
        ("from=2026-02-01&to=2026-01-01", "end_before_start"),
    ] {
        let path = format!("{}/calls?{query}", scene.place.organization_path());
        let answer = world.get(&path).bearer(&scene.ada.access_token).send().await;
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["error"]["details"][0]["code"], code, "{query}");
    }
}

#[on_each_database]
async fn call_is_read_by_its_id(world: World) {
    let scene = scene(&world).await;
    let all = format!("{}/calls", scene.place.organization_path());
    let listed = world.get(&format!("{all}?limit=1")).bearer(&scene.ada.access_token).data().await;
    let call = &listed["calls"][0];
    let id = call["id"].as_str().unwrap();
    // 14 x 0.000002 + 4 x 0.000006.
    let expected = json!({
        "id": id, "time": call["time"], "project_id": scene.other.project, "api_key_id": scene.keys[1],
        "user_id": null, "request_id": null, "operation": "chat", "model": "svc-1", "stream": false, "attempts": 0,
        "status": null, "code": null, "ended": "completed", "prompt_tokens": 14, "cached_prompt_tokens": null,
        "completion_tokens": 4, "reasoning_tokens": null, "estimated": false, "first_event_ms": null,
        "duration_ms": null, "amount": 0.000052, "end_user": null, "user_agent": null, "source": "vllm-1",
        "event_id": "e-4", "repeated": 0,
    });
    assert_eq!(*call, expected);
    let read = async |path: &str| world.get(path).bearer(&scene.ada.access_token).send().await;
    for path in [format!("{all}/{id}"), format!("{}/calls/{id}", scene.other.project_path())] {
        assert_eq!(read(&path).await.json()["data"], expected);
    }
    let unknown = "call_01kfz3v9xee8tb2m6h0q5w7r4n";
    for path in [
        format!("{}/calls/{id}", scene.place.project_path()),
        format!("{all}/{unknown}"),
        format!("{all}/unknown"),
    ] {
        let answer = read(&path).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "call_not_found"), "{path}");
    }
    let csv =
        world.get(&format!("{all}?limit=2")).bearer(&scene.ada.access_token).header("accept", "text/csv");
    let csv = csv.send().await;
    let lines: Vec<_> = csv.text.lines().collect();
    assert_eq!((csv.header("content-type"), lines.len()), ("text/csv; charset=utf-8", 3));
    assert!(lines[0].starts_with("id,time,project_id,") && lines[1].starts_with(id), "{}", csv.text);
    assert!(lines[1].ends_with(",0.000052,,,vllm-1,e-4,0"), "{}", csv.text);
}

#[on_each_database]
async fn performance_is_reported_by_group(world: World) {
    let scene = scene(&world).await;
    let path = format!("{}/usage/performance", scene.place.organization_path());
    let rows = async |query: &str| {
        let data = world.get(&format!("{path}{query}")).bearer(&scene.ada.access_token).data().await;
        data["performance"].as_array().unwrap().clone()
    };
    assert_eq!(rows("").await, Vec::<Value>::new());
    world.app.billing.call_log.flush().await.unwrap();
    let by_model = rows("?interval=day&group_by=model").await;
    assert_eq!(by_model.len(), 2);
    let row = &by_model[0];
    // 10, 11, 12 and 14 prompt tokens, 0, 1, 2 and 4 completion tokens: 47 x 0.000002 + 7 x 0.000006.
    assert_eq!(
        (&row["model"], &row["calls"], &row["prompt_tokens"], &row["completion_tokens"], &row["amount"]),
        (&json!("svc-1"), &json!(4), &json!(47), &json!(7), &json!(0.000136))
    );
    assert_eq!((&row["errors"], &row["duration_ms"]), (&json!({}), &Value::Null));
    let by_key = rows("?group_by=api_key,project").await;
    let keys: Vec<_> = by_key.iter().map(|row| (row["api_key_id"].clone(), row["calls"].clone())).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&(json!(scene.keys[0]), json!(3))), "{keys:?}");
    assert_eq!(rows(&format!("?project_id={}", scene.other.project)).await[0]["calls"], 2);
    world.clock.advance_ms(25 * HOUR_MS);
    let ada = world.session(scene.ada.id).await;
    let rows = async |query: &str| {
        let data = world.get(&format!("{path}{query}")).bearer(&ada.access_token).data().await;
        data["performance"].as_array().unwrap().clone()
    };
    assert_eq!(rows("").await, Vec::<Value>::new());
    assert_eq!(rows("?interval=day").await.len(), 1);
}
