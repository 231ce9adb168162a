//! The comparison of the call log with the usage (docs/operations.md#call-log).

use serde_json::json;
use tollkeeper::billing::audit;
use tollkeeper::clock::DAY_MS;

use support::books::change;
use support::on_each_database;
use support::world::World;

/// Returns the drifts between the log and the usage.
async fn found(world: &World) -> Vec<String> {
    let report = audit::check(&world.app.billing, None).await.unwrap();
    report
        .drifts
        .iter()
        .map(|drift| format!("{} {}: {}", drift.invariant, drift.expected, drift.found))
        .collect()
}

#[on_each_database]
async fn last_full_day_is_compared_with_the_usage(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
    let report = async |id: &str, more: serde_json::Value| {
        let mut event = json!({"id": id, "source": "vllm-1", "time": world.clock.now().to_string(),
            "api_key_id": key, "model": "svc-1", "kind": "chat"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    };
    world.clock.advance_ms(DAY_MS);
    report("one", json!({"prompt_tokens": 10, "completion_tokens": 5})).await;
    report("two", json!({"prompt_tokens": 20, "completion_tokens": 7})).await;
    // The day isn't over.
    change(&world, "UPDATE calls SET prompt_tokens = prompt_tokens + 1").await;
    assert_eq!(found(&world).await, [""; 0]);
    change(&world, "UPDATE calls SET prompt_tokens = prompt_tokens - 1").await;
    world.clock.advance_ms(DAY_MS);
    // A correction on the next day changes the day of its event: 28 x 0.000002 + 12 x 0.000006.
    report("less", json!({"corrects": "two", "prompt_tokens": -2, "completion_tokens": 0})).await;
    assert_eq!(found(&world).await, [""; 0]);
    let used = "call_log 2 requests, 28 + 12 tokens, 0.000128";
    for (broken, repaired, logged) in [
        (
            "prompt_tokens = prompt_tokens + 1",
            "prompt_tokens = prompt_tokens - 1",
            "2 requests, 30 + 12 tokens, 0.000128",
        ),
        (
            "completion_tokens = completion_tokens * 2",
            "completion_tokens = completion_tokens / 2",
            "2 requests, 28 + 24 tokens, 0.000128",
        ),
        (
            "amount_pico = amount_pico + 1000000",
            "amount_pico = amount_pico - 1000000",
            "2 requests, 28 + 12 tokens, 0.00013",
        ),
        ("second = second - 86400", "second = second + 86400", "0 requests, 0 + 0 tokens, 0"),
    ] {
        change(&world, &format!("UPDATE calls SET {broken}")).await;
        assert_eq!(found(&world).await, [format!("{used}: {logged}")], "{broken}");
        change(&world, &format!("UPDATE calls SET {repaired}")).await;
        assert_eq!(found(&world).await, [""; 0]);
    }
    // The log began in the middle of the day.
    change(&world, "DELETE FROM calls").await;
    assert_eq!(found(&world).await.len(), 1);
    change(&world, "UPDATE call_log_since SET since = since + 86400000").await;
    assert_eq!(found(&world).await, [""; 0]);
}
