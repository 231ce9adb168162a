//! Usage reports on the service listener, and reading them (docs/contract/usage.md).

use http::Method;
use serde_json::{Value, json};

use support::http::Call;
use support::on_each_database;
use support::world::World;

fn event(id: &str, key: &str, day: &str) -> Value {
    json!({"id": id, "source": "vllm-1", "time": format!("{day}T10:00:00Z"), "api_key_id": key, "model": "svc-1", "kind": "chat",
           "prompt_tokens": 1_000, "completion_tokens": 500})
}

#[on_each_database]
async fn event_counts_once_and_is_priced_exactly(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "Prod"})).await;
    let first =
        world.ask("/service/v1/usage", &json!({"events": [event("e1", &key, "2026-03-09")]})).bare().await;
    assert_eq!(first["results"][0]["status"], "accepted");
    let again =
        world.ask("/service/v1/usage", &json!({"events": [event("e1", &key, "2026-03-09")]})).bare().await;
    assert_eq!(again["results"][0]["status"], "duplicate");
    let mut changed = event("e1", &key, "2026-03-09");
    changed["prompt_tokens"] = json!(1);
    let conflict = world.ask("/service/v1/usage", &json!({ "events": [changed] })).bare().await;
    assert_eq!(conflict["results"][0]["code"], "event_conflict");

    let model = world.get("/v1/models/svc-1").bearer(&ada.access_token).send().await.text;
    let price = |name: &str| {
        let rest = model.split(&format!("\"{name}\":")).nth(1).unwrap();
        let literal: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        tollkeeper::money::Pico::parse(&literal).unwrap().units()
    };
    let due = tollkeeper::money::Pico::from_units(
        1_000 * price("prompt_tokens") + 500 * price("completion_tokens"),
    );

    let path = format!("{}/billing/usage", place.organization_path());
    let answer = world.get(&path).bearer(&ada.access_token).send().await;
    assert_eq!(answer.header("cache-control"), "private, no-store");
    let chat = format!(
        "\"chat\":{{\"requests\":1,\"tokens\":{{\"prompt\":1000,\"completion\":500}},\"amount\":{due}}}"
    );
    let nothing = "\"embeddings\":{\"requests\":0,\"tokens\":0,\"amount\":0}";
    let expected = format!(
        "\"data\":{{\"usage\":[{{\"date\":\"2026-03-09\",{chat},{nothing}}}],\"total\":{{{chat},{nothing}}}}}"
    );
    assert!(answer.text.contains(&expected), "{}\n{expected}", answer.text);

    let path = format!("{}/usage", place.project_path());
    let project = world.get(&path).bearer(&ada.access_token).send().await;
    let row = format!(
        "{{\"date\":\"2026-03-09\",\"api_key_id\":\"{key}\",\"api_key_name\":\"Prod\",\"user_id\":null,{chat},{nothing}}}"
    );
    assert!(project.text.contains(&row), "{}", project.text);
    assert_eq!(project.json()["data"]["project_name"], "Acme project");

    let detail = world.get(&place.project_path()).bearer(&ada.access_token).data().await;
    assert_eq!(detail["usage"], json!({"tokens": 1_500, "requests": 1}));
    let path = format!("{}/api-keys/{key}", place.project_path());
    let detail = world.get(&path).bearer(&ada.access_token).data().await;
    assert_eq!(
        (&detail["usage"]["total_requests"], &detail["usage"]["total_tokens"]),
        (&json!(1), &json!(1_500))
    );
}

#[on_each_database]
async fn ranges_add_up_days_and_exclude_their_end(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    world.clock.advance_ms(1);
    let (other, _) = world.old_key(&ada, &place, &json!({"name": "b"})).await;
    let mut embedding = event("e5", &key, "2026-03-02");
    embedding["model"] = json!("svc-embedding-1");
    embedding["kind"] = json!("embeddings");
    embedding["completion_tokens"] = json!(0);
    let events = json!([
        event("e1", &key, "2026-02-28"),
        event("e2", &key, "2026-03-01"),
        event("e3", &key, "2026-03-01"),
        event("e4", &other, "2026-03-01"),
        embedding,
        event("e6", &key, "2026-03-09")
    ]);
    world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    let days = async |query: &str| {
        let path = format!("{}/billing/usage{query}", place.organization_path());
        let data = world.get(&path).bearer(&ada.access_token).data().await;
        let days = data["usage"].as_array().unwrap().iter().map(|row| {
            let count =
                row["chat"]["requests"].as_i64().unwrap() + row["embeddings"]["requests"].as_i64().unwrap();
            format!("{}:{count}", &row["date"].as_str().unwrap()[5..])
        });
        days.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(days("").await, "03-01:3 03-02:1 03-09:1");
    assert_eq!(days("?start_date=2026-02-28&end_date=2026-03-02").await, "02-28:1 03-01:3");
    assert_eq!(
        days("?start_date=2026-03-01T23:00:00Z&end_date=2026-03-02T00:00:00.001Z&group_by=day").await,
        "03-01:3 03-02:1"
    );
    assert_eq!(days("?start_date=2026-03-05&end_date=2026-03-05").await, "");
    let path = format!("{}/usage?start_date=2026-03-01&end_date=2026-03-02", place.project_path());
    let rows = world.get(&path).bearer(&ada.access_token).data().await;
    let rows: Vec<_> = rows["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["api_key_name"].clone(), r["chat"]["requests"].clone()))
        .collect();
    assert_eq!(rows, [(json!("a"), json!(2)), (json!("b"), json!(1))]);
    for bad in [
        "?start_date=2026-03-02&end_date=2026-03-01",
        "?start_date=2025-01-01&end_date=2026-01-03",
        "?start_date=yesterday",
        "?end_date=2026-02-30",
        "?group_by=hour",
        "?group_by=day,week",
    ] {
        let path = format!("{}/billing/usage{bad}", place.organization_path());
        let refused = world.get(&path).bearer(&ada.access_token).refused().await;
        assert_eq!(refused, (400, "invalid_request".into()), "{bad}");
    }
}

#[on_each_database]
async fn get_request_body_overrides_the_query(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    world.ask("/service/v1/usage", &json!({"events": [event("e1", &key, "2026-02-03")]})).bare().await;
    let february =
        json!({"start_date": "2026-02-01T00:00:00Z", "end_date": "2026-03-01T00:00:00Z", "group_by": "day"});
    for path in
        [format!("{}/billing/usage", place.organization_path()), format!("{}/usage", place.project_path())]
    {
        let count =
            async |call: Call| call.bearer(&ada.access_token).data().await["usage"].as_array().unwrap().len();
        assert_eq!(count(world.get(&path).json(&february)).await, 1);
        assert_eq!(count(world.get(&format!("{path}?start_date=2026-03-01")).json(&february)).await, 1);
        assert_eq!(count(world.get(&path)).await, 0);
        let misspelt =
            world.get(&path).json(&json!({"startdate": "x"})).bearer(&ada.access_token).send().await;
        assert_eq!(misspelt.details(), ["startdate unknown_field"]);
    }
}

#[on_each_database]
async fn events_of_a_batch_succeed_or_fail_independently(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    let with = |id: &str, field: &str, value: Value| {
        let mut event = event(id, &key, "2026-03-09");
        event[field] = value;
        event
    };
    let events = json!([
        event("good", &key, "2026-03-09"),
        with("unknown-key", "api_key_id", json!("key_01h2xcejqtf2nbrexx3vqjhp41")),
        with("bad-key", "api_key_id", json!("nope")),
        with("unknown-model", "model", json!("gpt-9")),
        with("wrong-kind", "kind", json!("embeddings")),
        with("future", "time", json!("2026-03-10T12:05:00.001Z")),
        with("old", "time", json!("2024-03-10T12:00:00Z")),
        with("negative", "prompt_tokens", json!(-1)),
        with("fraction", "prompt_tokens", json!(1.5)),
        with("misspelt", "promt_tokens", json!(1)),
        with("nul", "source", json!("a\u{0}b")),
        json!("not an object"),
        event("good", &key, "2026-03-09"),
        event("good too", &key, "2026-03-09"),
    ]);
    let answer = world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    let outcomes: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| {
            format!(
                "{} {}",
                result["id"].as_str().unwrap_or("-"),
                result["code"].as_str().unwrap_or(result["status"].as_str().unwrap())
            )
        })
        .collect();
    let expected = [
        "good accepted",
        "unknown-key unknown_api_key",
        "bad-key invalid_event",
        "unknown-model unknown_model",
        "wrong-kind wrong_kind",
        "future event_in_future",
        "old event_too_old",
        "negative invalid_event",
        "fraction invalid_event",
        "misspelt invalid_event",
        "nul invalid_event",
        "- invalid_event",
        "good duplicate",
        "good too accepted",
    ];
    assert_eq!(outcomes, expected);
    // An event in the future becomes valid, and the catalog may get the model, so these events may be
    // retried. The others remain refused.
    for result in answer["results"].as_array().unwrap() {
        let code = result["code"].as_str().unwrap_or_default();
        assert_eq!(result["retryable"], ["unknown_model", "event_in_future"].contains(&code), "{result}");
    }
    let scrape = Call::new(&world.service, Method::GET, "/metrics");
    let metrics = scrape.bearer(world.app.api.service_token.expose()).send().await.text;
    for (result, code, count) in [
        ("accepted", "", 2),
        ("duplicate", "", 1),
        ("refused", "unknown_api_key", 1),
        ("refused", "unknown_model", 1),
        ("refused", "wrong_kind", 1),
        ("refused", "event_in_future", 1),
        ("refused", "event_too_old", 1),
        ("refused", "invalid_event", 6),
    ] {
        let line = format!("tollkeeper_usage_events_total{{code=\"{code}\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    assert_eq!(
        world.get(&place.project_path()).bearer(&ada.access_token).data().await["usage"]["requests"],
        2
    );
}

#[on_each_database]
async fn repetition_of_an_old_event_is_still_a_duplicate(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    let body = json!({"events": [event("e1", &key, "2026-03-09")]});
    world.ask("/service/v1/usage", &body).bare().await;
    world.clock.advance_ms(500 * tollkeeper::clock::DAY_MS);
    let again = world.ask("/service/v1/usage", &body).bare().await;
    assert_eq!(again["results"][0]["status"], "duplicate");
    let mut changed = event("e1", &key, "2026-03-09");
    changed["prompt_tokens"] = json!(1);
    let conflict = world.ask("/service/v1/usage", &json!({ "events": [changed] })).bare().await;
    assert_eq!(conflict["results"][0]["code"], "event_conflict");
    let unknown = json!({"events": [event("e2", &key, "2026-03-09")]});
    assert_eq!(world.ask("/service/v1/usage", &unknown).bare().await["results"][0]["code"], "event_too_old");
}

#[on_each_database]
async fn event_reported_concurrently_counts_once(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    let body = json!({"events": [event("e1", &key, "2026-03-09")]});
    let calls = (0..32).map(|_| world.ask("/service/v1/usage", &body).bare());
    let answers = futures_util::future::join_all(calls).await;
    let accepted = answers.iter().filter(|answer| answer["results"][0]["status"] == "accepted").count();
    assert_eq!(accepted, 1);
    assert_eq!(
        world.get(&place.project_path()).bearer(&ada.access_token).data().await["usage"]["requests"],
        1
    );
}

#[on_each_database]
async fn crossing_batches_do_not_deadlock(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut keys = Vec::new();
    for name in 0..4 {
        keys.push(world.old_key(&ada, &place, &json!({"name": format!("k{name}")})).await.0);
    }
    // The first rounds open the connections; later batches run at the same time.
    for round in 0..6 {
        let batches = (0..16).map(|n: usize| {
            // The same events in different orders, and one event that only this batch has.
            let mut events: Vec<_> =
                (0..20).map(|e| event(&format!("{round}-{e}"), &keys[e % 4], "2026-03-09")).collect();
            events.push(event(&format!("{round}-own{n}"), &keys[n % 4], "2026-03-09"));
            events.rotate_left(n);
            if n % 2 == 1 {
                events.reverse();
            }
            world.ask("/service/v1/usage", &json!({ "events": events })).bare()
        });
        let answers = futures_util::future::join_all(batches).await;
        let results = answers.iter().flat_map(|answer| answer["results"].as_array().unwrap());
        let accepted = results.filter(|result| result["status"] == "accepted").count();
        assert_eq!(accepted, 36);
    }
    let detail = world.get(&place.project_path()).bearer(&ada.access_token).data().await;
    assert_eq!(detail["usage"]["requests"], 6 * 36);
}

#[on_each_database]
async fn same_id_from_another_source_or_organization_is_another_event(world: World) {
    let ada = world.user("ada").await;
    let (one, two) = (world.place(&ada, "One").await, world.place(&ada, "Two").await);
    let (key, _) = world.old_key(&ada, &one, &json!({"name": "a"})).await;
    let (other, _) = world.old_key(&ada, &two, &json!({"name": "a"})).await;
    let mut elsewhere = event("e1", &key, "2026-03-09");
    elsewhere["source"] = json!("vllm-2");
    let events = json!([event("e1", &key, "2026-03-09"), elsewhere, event("e1", &other, "2026-03-09")]);
    let answer = world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    assert!(answer["results"].as_array().unwrap().iter().all(|result| result["status"] == "accepted"));
}

#[on_each_database]
async fn only_the_service_token_opens_the_service_listener(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"events": []});
    for path in ["/service/v1/usage", "/service/v1/authorize"] {
        for token in ["", "wrong", ada.access_token.as_str()] {
            let answer = Call::new(&world.service, Method::POST, path).bearer(token).json(&body).send().await;
            assert_eq!(answer.status, 401);
            assert_eq!(answer.json().as_object().unwrap().len(), 1, "no envelope");
        }
        let public = Call::new(&world.public, Method::POST, path)
            .bearer(world.app.api.service_token.expose())
            .json(&body);
        assert_eq!(public.refused().await, (404, "unknown_path".into()));
    }
    let refused = world.ask("/service/v1/usage", &body).refused().await;
    assert_eq!(refused, (400, "invalid_request".into()));
}

#[on_each_database]
async fn authorize_answers_with_a_decision(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.old_key(&ada, &place, &json!({"name": "all"})).await;
    let narrow = json!({"name": "narrow", "permissions": ["chat"], "restrictions": {"models": ["svc-1"], "max_tokens": 100,
        "allowed_ips": ["192.0.2.0/24"], "rate_limit": 1}});
    let (_, narrow) = world.old_key(&ada, &place, &narrow).await;
    let ask = async |body: Value| world.ask("/service/v1/authorize", &body).bare().await;
    let yes = ask(
        json!({"credential": key, "client_address": "198.51.100.7", "operation": "chat", "reserve": false, "model": "svc-1",
        "max_tokens": 4096, "estimated_prompt_tokens": 10}),
    )
    .await;
    let expected = json!({"allowed": true, "status": 200, "code": null, "message": null, "organization_id": place.organization,
        "project_id": place.project, "api_key_id": id, "user_id": ada.id.to_string(), "model": "svc-1", "max_tokens": 4096, "retry_after_ms": null,
        "reservation": null, "limits": {"api_key": null, "model": {"limit_requests": 60, "remaining_requests": 59, "reset_requests_ms": 1_000}}});
    assert_eq!(yes, expected);

    let call = json!({"credential": narrow, "client_address": "192.0.2.1", "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": 100});
    let with = |field: &str, value: Value| {
        let mut call = call.clone();
        call[field] = value;
        call
    };
    let cases = [
        (with("credential", json!("tk_nobody")), 401, "invalid_api_key"),
        (with("credential", json!("")), 401, "invalid_api_key"),
        (with("client_address", json!("198.51.100.7")), 403, "ip_not_allowed"),
        (with("client_address", json!(null)), 403, "ip_not_allowed"),
        (with("operation", json!("files")), 403, "missing_permission"),
        (with("model", json!("gpt-9")), 404, "model_not_found"),
        (with("model", json!("svc-embedding-1")), 404, "model_not_found"),
        (with("model", json!("svc-1-pro")), 403, "model_not_allowed"),
        (with("max_tokens", json!(101)), 400, "max_tokens_exceeded"),
    ];
    for (body, status, code) in cases {
        let no = ask(body.clone()).await;
        assert_eq!(
            (&no["allowed"], &no["status"], &no["code"]),
            (&json!(false), &json!(status), &json!(code)),
            "{body}"
        );
    }
    let all = |tokens: Value| json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": tokens});
    assert_eq!(ask(all(json!(4_097))).await["code"], "max_tokens_exceeded", "the model's own limit");
    assert_eq!(ask(all(json!(null))).await["max_tokens"], 4_096);
    assert_eq!(ask(all(json!(7))).await["max_tokens"], 7);
    let unsaid = ask(with("max_tokens", json!(null))).await;
    assert_eq!(
        (&unsaid["allowed"], &unsaid["max_tokens"]),
        (&json!(true), &json!(100)),
        "refusals didn't count against the rate"
    );
    let no = ask(call.clone()).await;
    assert_eq!(
        (&no["status"], &no["code"], &no["retry_after_ms"]),
        (&json!(429), &json!("rate_limited"), &json!(60_000))
    );
    for bad in [
        json!({}),
        with("operation", json!("fly")),
        with("client_address", json!("localhost")),
        with("model", json!(null)),
    ] {
        assert_eq!(
            world.ask("/service/v1/authorize", &bad).refused().await,
            (400, "invalid_request".into()),
            "{bad}"
        );
    }
}
