//! The operations on budgets.

use support::billed::budgets_path;
use support::on_each_database;
use support::world::World;
use tollkeeper::db::sql;

use super::*;

fn codes(answer: &Answer) -> Vec<String> {
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{}", answer.text);
    answer.details()
}

/// Returns the audit entries about budgets, oldest first: their actions and targets.
async fn entries(world: &World) -> Vec<(String, String)> {
    let text = "SELECT action, target FROM audit_log WHERE action LIKE 'budget.%' ORDER BY id";
    sql(text).all(&mut world.app.db.read().await.unwrap()).await.unwrap()
}

#[on_each_database]
async fn budget_is_made_read_changed_and_deleted(world: World) {
    let scene = Scene::new(&world).await;
    let token = &scene.ada.access_token;
    let (project, key) = (&scene.place.project, &scene.keys[0].0);
    let body = json!({"name": " One key ", "scope": "api_key", "api_key_id": key, "period": "month",
        "limit": 12.5, "hard": true, "thresholds": [10, 100]});
    let made = scene.create(&body).await;
    assert_eq!(made.header("cache-control"), "private, no-store");
    let made = made.json()["data"].clone();
    let time = "2026-03-10T12:00:00.000Z";
    let due = json!({"id": made["id"], "name": "One key", "scope": "api_key", "project_id": project,
        "api_key_id": key, "period": "month", "limit": 12.5, "hard": true, "thresholds": [10, 100],
        "currency": "USD", "period_start": "2026-03-01T00:00:00.000Z",
        "period_end": "2026-04-01T00:00:00.000Z", "spent": 0, "reserved": 0, "left": 12.5,
        "created_at": time, "updated_at": time});
    assert_eq!(made, due);
    let budget = id(&made);
    assert_eq!(scene.read(&budget).await, due);
    let path = format!("{}/{budget}", scene.path());
    let tag = world.get(&path).bearer(token).send().await.header("etag").to_owned();
    // Spending isn't a change of the budget, so its tag stays the same.
    scene.report("1", 0, CALL, &[]).await;
    world.clock.advance_ms(1_000);
    let change = |body: Value, tag: &str| {
        world.call(Method::PUT, &path).bearer(token).header("if-match", tag).json(&body).send()
    };
    let same = change(json!({"name": "One key", "limit": "12.50"}), &tag).await;
    assert_eq!((same.status, same.header("etag")), (200, tag.as_str()), "{}", same.text);
    let changed =
        change(json!({"name": "Key", "limit": "0.001", "hard": false, "thresholds": []}), &tag).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let data = &changed.json()["data"];
    assert_eq!(
        (&data["name"], &data["hard"], &data["thresholds"]),
        (&json!("Key"), &json!(false), &json!([]))
    );
    assert_eq!(
        (&data["updated_at"], state(data)),
        (&json!("2026-03-10T12:00:01.000Z"), ["0.00062", "0", "0.00038"].map(str::to_owned))
    );
    assert_eq!(change(json!({"limit": 1}), &tag).await.status, 412);
    let delete = |tag: &str| world.call(Method::DELETE, &path).bearer(token).header("if-match", tag).send();
    world.clock.advance_ms(1_000);
    assert_eq!(delete(&tag).await.status, 412);
    assert_eq!(delete(changed.header("etag")).await.status, 200);
    assert_eq!(world.get(&path).bearer(token).refused().await, (404, "budget_not_found".to_owned()));
    let due = ["budget.created", "budget.changed", "budget.deleted"];
    assert_eq!(entries(&world).await, due.map(|action| (action.to_owned(), budget.clone())));
    for table in ["budgets", "budget_uses", "budget_alerts", "wallets WHERE budgets <> 0"] {
        let mut tx = world.app.db.read().await.unwrap();
        let (left,): (i64,) = sql(format!("SELECT COUNT(*) FROM {table}")).one(&mut tx).await.unwrap();
        assert_eq!(left, 0, "{table}");
    }
    scene.check().await;
}

#[on_each_database]
async fn defaults_are_soft_with_three_thresholds(world: World) {
    let scene = Scene::new(&world).await;
    let body = json!({"name": "b", "scope": "organization", "period": "total", "limit": "0.000000001"});
    let made = scene.create(&body).await.json()["data"].clone();
    assert_eq!((&made["hard"], &made["thresholds"]), (&json!(false), &json!([50, 80, 100])));
    assert_eq!((&made["project_id"], &made["api_key_id"]), (&Value::Null, &Value::Null));
}

#[on_each_database]
async fn budgets_are_listed_newest_first(world: World) {
    let scene = Scene::new(&world).await;
    let mut made = Vec::new();
    for scope in ["organization", "project", "api_key"] {
        world.clock.advance_ms(1);
        made.push(scene.budget(scope, "day", "1", true).await.0);
    }
    scene.report("1", 1, CALL, &[]).await;
    let list = async |query: &str| {
        let path = format!("{}{query}", scene.path());
        world.get(&path).bearer(&scene.ada.access_token).data().await
    };
    let all = list("").await;
    let budgets = all["budgets"].as_array().unwrap();
    assert_eq!(budgets.iter().map(id).rev().collect::<Vec<_>>(), made);
    assert_eq!(
        budgets.iter().map(|one| one["spent"].to_string()).collect::<Vec<_>>(),
        ["0", "0.00062", "0.00062"]
    );
    let second = list("?page=2&page_size=2").await;
    assert_eq!((&second["total"], &second["page"], &second["page_size"]), (&json!(3), &json!(2), &json!(2)));
    assert_eq!(second["budgets"].as_array().unwrap().iter().map(id).collect::<Vec<_>>(), made[..1]);
}

#[on_each_database]
async fn bad_fields_are_named(world: World) {
    let scene = Scene::new(&world).await;
    let good = json!({"name": "b", "scope": "organization", "period": "day", "limit": 1});
    let with = |changes: Value| {
        let mut body = good.clone();
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let project = &scene.place.project;
    let cases = [
        (json!({}), vec!["name required", "scope required", "period required", "limit required"]),
        (with(json!({"scope": "team"})), vec!["scope unknown_value"]),
        (with(json!({"period": "week"})), vec!["period unknown_value"]),
        (with(json!({"limit": 0})), vec!["limit invalid_amount"]),
        (with(json!({"limit": -1})), vec!["limit invalid_amount"]),
        (with(json!({"limit": "1e3"})), vec!["limit invalid_amount"]),
        (with(json!({"limit": 9_000_000_001_i64})), vec!["limit invalid_amount"]),
        (with(json!({"limit": "0.0000000001"})), vec!["limit invalid_amount"]),
        (with(json!({"limit": 1_234_567.123_456_789})), vec!["limit too_many_digits"]),
        (with(json!({"limit": true})), vec!["limit wrong_type"]),
        (with(json!({"thresholds": [0]})), vec!["thresholds[0] out_of_range"]),
        (with(json!({"thresholds": [80, 50]})), vec!["thresholds invalid_thresholds"]),
        (with(json!({"hard": "yes"})), vec!["hard wrong_type"]),
        (with(json!({"scope": "project"})), vec!["project_id required"]),
        (
            with(json!({"scope": "api_key", "project_id": project})),
            vec!["project_id unexpected_subject", "api_key_id required"],
        ),
        (with(json!({"project_id": project})), vec!["project_id unexpected_subject"]),
        (with(json!({"project_id": "x", "scope": "project"})), vec!["project_id invalid_id"]),
        (with(json!({"spent": 1})), vec!["spent unknown_field"]),
    ];
    for (body, due) in cases {
        assert_eq!(codes(&scene.create(&body).await), due, "{body}");
    }
    let (budget, _) = scene.budget("organization", "day", "1", true).await;
    let path = format!("{}/{budget}", scene.path());
    let cases = [
        (json!({"period": "month"}), vec!["period unknown_field"]),
        (json!({"limit": null}), vec!["limit required"]),
        (json!({"scope": "project"}), vec!["scope unknown_field"]),
    ];
    for (body, due) in cases {
        let answer = world.call(Method::PUT, &path).bearer(&scene.ada.access_token).json(&body).send().await;
        assert_eq!(codes(&answer), due, "{body}");
    }
}

#[on_each_database]
async fn project_and_key_are_of_the_organization(world: World) {
    let scene = Scene::new(&world).await;
    let bob = world.user("bob").await;
    let theirs = world.place(&bob, "Theirs").await;
    let (key, _) = world.key(&bob, &theirs, &json!({"name": "k"})).await;
    let body = json!({"name": "b", "period": "day", "limit": 1});
    let with = |scope: &str, name: &str, value: &str| {
        let mut body = body.clone();
        (body["scope"], body[name]) = (json!(scope), json!(value));
        body
    };
    let refused = scene.create(&with("project", "project_id", &theirs.project)).await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "project_not_found"));
    assert_eq!(refused.json()["error"]["param"], "project_id");
    let refused = scene.create(&with("api_key", "api_key_id", &key)).await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "api_key_not_found"));
    // The organization can't find another organization's budget.
    let made = scene.budget("organization", "day", "1", true).await.0;
    let path = format!("{}/{made}", budgets_path(&theirs.organization));
    assert_eq!(
        world.get(&path).bearer(&bob.access_token).refused().await,
        (404, "budget_not_found".to_owned())
    );
}

#[on_each_database]
async fn budgets_are_limited(world: World) {
    let scene = Scene::new(&world).await;
    for number in 0..10 {
        let body = json!({"name": number.to_string(), "scope": "api_key", "api_key_id": scene.keys[0].0,
            "period": "day", "limit": 1});
        assert_eq!(scene.create(&body).await.status, 200);
    }
    let body =
        json!({"name": "b", "scope": "api_key", "api_key_id": scene.keys[0].0, "period": "day", "limit": 1});
    let refused = scene.create(&body).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "limit_reached"), "{}", refused.text);
    scene.budget("project", "day", "1", true).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE wallets SET budgets = 1000").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let body = json!({"name": "b", "scope": "organization", "period": "day", "limit": 1});
    let refused = scene.create(&body).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "limit_reached"), "{}", refused.text);
}

#[on_each_database]
async fn thresholds_are_reached_once_a_period(world: World) {
    let scene = Scene::new(&world).await;
    // 50%, 80% and 100% are 0.0005, 0.0008 and 0.001.
    let (day, _) = scene.budget("organization", "day", "0.001", false).await;
    let reached = async || -> Vec<(i64, i64)> {
        let text = "SELECT threshold, spent_pico FROM budget_alerts WHERE budget_id = $1 ORDER BY threshold";
        sql(text).bind(day.as_str()).all(&mut world.app.db.read().await.unwrap()).await.unwrap()
    };
    scene.reserve(0).await;
    assert_eq!(reached().await, [], "reserved money isn't spent");
    // 249 x 0.000002 = 0.000498. The next event makes it 0.0005.
    scene.report("1", 0, [249, 0], &[]).await;
    assert_eq!(reached().await, []);
    scene.report("2", 0, [1, 0], &[]).await;
    assert_eq!(reached().await, [(50, 500_000_000)]);
    // Spending is corrected to less than the threshold, and reaches it again: no second alert.
    scene.report("3", 0, [-100, 0], &[("corrects", json!("1"))]).await;
    scene.report("4", 0, [100, 0], &[]).await;
    assert_eq!(reached().await, [(50, 500_000_000)]);
    // Yesterday's usage doesn't count today.
    scene.report("5", 0, [9_000, 0], &[("time", json!("2026-03-09T10:00:00Z"))]).await;
    assert_eq!(reached().await, [(50, 500_000_000)]);
    scene.report("6", 0, [300, 0], &[]).await;
    assert_eq!(reached().await, [(50, 500_000_000), (80, 1_100_000_000), (100, 1_100_000_000)]);
    // A lower limit doesn't change the amount spent.
    let path = format!("{}/{day}", scene.path());
    let change = json!({"limit": "0.0005", "thresholds": [100, 200]});
    world.call(Method::PUT, &path).bearer(&scene.ada.access_token).json(&change).send().await;
    assert_eq!(reached().await.last(), Some(&(200, 1_100_000_000)));
    // A new budget immediately includes earlier spending.
    let body = json!({"name": "late", "scope": "organization", "period": "day", "limit": "0.0022"});
    let late = id(&scene.create(&body).await.json()["data"]);
    let text = "SELECT threshold FROM budget_alerts WHERE budget_id = $1";
    let found: Vec<(i64,)> = sql(text).bind(late).all(&mut world.app.db.read().await.unwrap()).await.unwrap();
    assert_eq!(found, [(50,)]);
}

#[on_each_database]
async fn names_are_unique_in_the_organization(world: World) {
    let scene = Scene::new(&world).await;
    let body = |name: &str| json!({"name": name, "scope": "organization", "period": "day", "limit": 1});
    assert_eq!(scene.create(&body("Everything")).await.status, 200);
    let taken = scene.create(&body(" EVERYTHING")).await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"), "{}", taken.text);
    let other = id(&scene.create(&body("Other")).await.json()["data"]);
    let path = format!("{}/{other}", scene.path());
    let rename = |name: &str| {
        let call = world.call(Method::PUT, &path).bearer(&scene.ada.access_token);
        call.json(&json!({ "name": name })).send()
    };
    let taken = rename("everything").await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"), "{}", taken.text);
    assert_eq!(rename("other").await.status, 200);
    let elsewhere = world.place(&scene.ada, "Elsewhere").await;
    let path = budgets_path(&elsewhere.organization);
    let made = world.post(&path, &body("Everything")).bearer(&scene.ada.access_token).send().await;
    assert_eq!(made.status, 200, "{}", made.text);
}
