//! The playground: model calls by users in the console.

use serde_json::{Value, json};
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use crate::gateway::{Scene, with_upstream};
use support::console::Browser;
use support::http::Answer;
use support::upstream::{event, json_answer, piece, stream_head};
use support::world::{Place, World};
use support::{Database, on_each_database};

const HELLO: [(&str, &str); 4] =
    [("model", "svc-1"), ("instructions", ""), ("message", "Say hello"), ("max_tokens", "20")];

fn path(place: &Place) -> String {
    format!("/console/organizations/{}/projects/{}/playground", place.organization, place.project)
}

/// Returns the lines of a streamed answer.
fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), "application/x-ndjson", "{answer:?}");
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the text that the page's script assembles.
fn text(lines: &[Value]) -> String {
    lines.iter().filter_map(|line| line["text"].as_str()).collect()
}

/// Returns the usage report of the organization.
async fn report(world: &World, token: &str, place: &Place) -> String {
    let path = format!("{}/billing/usage", place.organization_path());
    world.get(&path).bearer(token).send().await.text
}

/// Returns the text between two other texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before}: {text}")).1;
    rest.split_once(after).unwrap().0
}

#[on_each_database]
async fn person_gets_an_answer_with_its_exact_price(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "acme").await;
    let browser = world.browser(ada.id).await;
    let path = path(&place);
    let page = browser.page(&world, &path).await;
    assert!(page.contains("<option value=\"svc-1\">") && !page.contains("svc-embedding-1"), "{page}");
    assert!(page.contains("data-answer hidden") && page.contains(&format!("data-stream=\"{path}/stream\"")));
    assert!(page.len() < 50_000);

    let answer = browser.post(&world, &path, &HELLO).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let page = answer.text;
    assert!(page.contains("This is the demo model inside tollkeeper."), "{page}");
    assert!(page.contains("The answer was cut"), "20 tokens are fewer than its words: {page}");
    assert!(page.contains("Say hello</textarea>") && page.contains("<option value=\"svc-1\" selected>"));
    assert_eq!(between(&page, "data-shown=\"prompt_tokens\">", "<"), "2");
    assert_eq!(between(&page, "data-shown=\"completion_tokens\">", "<"), "20");
    // 2 · 0.000002 + 20 · 0.000006
    assert_eq!(between(&page, "data-shown=\"price\" title=\"0.000124 USD\">", "<"), "0.0001 USD");
    assert!(page.contains("curl http") && page.contains("/v1/chat/completions"), "{page}");
    assert!(page.contains("client.chat.completions.create("), "{page}");
    let usage = report(&world, &ada.access_token, &place).await;
    let chat = "\"chat\":{\"requests\":1,\"tokens\":{\"prompt\":2,\"completion\":20},\"amount\":0.000124}";
    assert!(usage.contains(chat), "{usage}");

    world.clock.advance_ms(1);
    let answer = browser.post(&world, &format!("{path}/stream"), &HELLO).send().await;
    assert_eq!((answer.status, answer.header("x-accel-buffering")), (200, "no"), "{answer:?}");
    let lines = lines(&answer);
    assert!(text(&lines).starts_with("This is the demo model inside tollkeeper."), "{lines:?}");
    assert!(lines[0]["curl"].as_str().unwrap().contains("\"content\": \"Say hello\""), "{lines:?}");
    assert!(lines.iter().any(|line| line["remark"].as_str().is_some_and(|words| words.contains("cut"))));
    let figures = json!({"prompt_tokens": "2", "completion_tokens": "20", "price": "0.0001 USD",
        "exact_price": "0.000124 USD"});
    assert_eq!(lines.last().unwrap()["figures"], figures, "{lines:?}");
    let usage = report(&world, &ada.access_token, &place).await;
    let chat = "\"chat\":{\"requests\":2,\"tokens\":{\"prompt\":4,\"completion\":40},\"amount\":0.000248}";
    assert!(usage.contains(chat), "one event per call: {usage}");
    let project = format!("{}/usage", place.project_path());
    let usage = world.get(&project).bearer(&ada.access_token).send().await.text;
    assert!(usage.contains(&format!("\"user_id\":\"{}\"", ada.id)), "the usage belongs to the user: {usage}");
}

#[on_each_database]
async fn mistakes_keep_the_form_and_cost_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "acme").await;
    // The second organization of a user has no credit limit.
    let poor = world.place(&ada, "poor").await;
    let browser = world.browser(ada.id).await;
    let refused = async |place: &Place, fields: &[(&str, &str)], status: u16, words: &str| {
        let answer = browser.post(&world, &path(place), fields).send().await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.text.contains(words), "{words}: {}", answer.text);
        assert!(answer.text.contains("Say hello</textarea>") || fields[2].1.is_empty(), "{}", answer.text);
        assert!(answer.text.contains("data-answer hidden"), "{}", answer.text);
    };
    let with = |name: &str, value: &'static str| {
        HELLO.map(|(other, before)| if other == name { (other, value) } else { (other, before) })
    };
    refused(&place, &with("message", ""), 400, "Message can&#39;t be empty.").await;
    refused(&place, &with("max_tokens", "many"), 400, "href=\"#max_tokens\"").await;
    refused(&place, &with("model", "svc-embedding-1"), 404, "href=\"#model\"").await;
    refused(&place, &with("model", "<script>"), 404, "href=\"#model\"").await;
    refused(
        &poor,
        &HELLO,
        402,
        "This call needs up to 0.001374 USD, but the organization has 0 USD available",
    )
    .await;
    let answer = browser.post(&world, &format!("{}/stream", path(&poor)), &HELLO).send().await;
    assert_eq!(answer.status, 402, "{answer:?}");
    let failure = lines(&answer)[0]["failure"].as_str().unwrap().to_owned();
    assert!(failure.contains("This call needs up to 0.00137"), "{failure}");
    let answer = browser.post(&world, &format!("{}/stream", path(&place)), &with("message", "")).send().await;
    assert_eq!(answer.status, 400);
    assert!(answer.header("content-type").starts_with("text/html"), "the form itself shows it: {answer:?}");
    for place in [&place, &poor] {
        let usage = report(&world, &ada.access_token, place).await;
        assert!(usage.contains("\"usage\":[]"), "{usage}");
    }
}

#[on_each_database]
async fn only_developers_of_the_project_get_in(world: World) {
    let ada = world.user("ada").await;
    let [dev, viewer, stranger] = [world.user("dev").await, world.user("eve").await, world.user("sam").await];
    let place = world.place(&ada, "acme").await;
    for (user, role) in [(&dev, ProjectRole::Developer), (&viewer, ProjectRole::Viewer)] {
        world.join_organization(&place, user, OrganizationRole::Member).await;
        world.join_project(&place, user, role).await;
    }
    let (path, stream) = (path(&place), format!("{}/stream", path(&place)));
    let browser = world.browser(dev.id).await;
    browser.page(&world, &path).await;
    for (user, status) in [(&viewer, 403), (&stranger, 403)] {
        let browser = world.browser(user.id).await;
        assert_eq!(browser.get(&world, &path).send().await.status, status);
        assert_eq!(browser.post(&world, &path, &HELLO).send().await.status, status);
        assert_eq!(browser.post(&world, &stream, &HELLO).send().await.status, status);
    }
    assert_eq!(Browser::signed_out().get(&world, &path).send().await.status, 303);
    assert_eq!(Browser::signed_out().post(&world, &stream, &HELLO).send().await.status, 401);
    // A page of another site can't spend the organization's money.
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://elsewhere.example")] {
        for path in [&path, &stream] {
            let call = browser.sends(world.call(http::Method::POST, path)).header(name, value).form(&HELLO);
            assert_eq!(call.send().await.status, 403, "{name}");
        }
    }
    let usage = report(&world, &ada.access_token, &place).await;
    assert!(usage.contains("\"usage\":[]"), "{usage}");
    assert_eq!(browser.post(&world, &stream, &HELLO).send().await.status, 200);
}

const CHAT: [(&str, &str); 2] = [("model", "chat-1"), ("message", "hi")];

#[on_each_database]
fn failures_of_the_server_behind_the_model_are_sentences(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        let (world, path) = (&scene.world, path(&scene.place));
        let browser = world.browser(scene.ada.id).await;
        scene.upstream.script([
            json_answer(429, &json!({"error": {"message": "queue full"}})),
            json_answer(429, &json!({"error": {"message": "queue full"}})),
        ]);
        let answer = browser.post(world, &path, &CHAT).send().await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(answer.text.contains("Every server of this model is busy. Nothing was done. Try again in"));
        assert!(answer.text.contains("hi</textarea>"), "{}", answer.text);
        assert_eq!(scene.used().await, []);

        world.clock.advance_ms(60_000);
        let said = |content: &str, prompt: i64, completion: i64| {
            event(&json!({
                "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "org/engine-model",
                "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": null}],
                "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
            }))
        };
        scene.upstream.script([vec![
            stream_head(),
            said("<b>Hé", 7, 1),
            piece(": a comment\n\n"),
            said("llo</b>", 7, 2),
            support::upstream::Step::Close,
        ]]);
        let answer = browser.post(world, &format!("{path}/stream"), &CHAT).send().await;
        let lines = lines(&answer);
        assert_eq!(text(&lines), "<b>Héllo</b>", "{lines:?}");
        let failure = lines.iter().find_map(|line| line["failure"].as_str());
        assert!(failure.is_some_and(|words| words.contains("before it was complete")), "{lines:?}");
        // 7 · 0.000001 + 2 · 0.00001
        assert_eq!(lines.last().unwrap()["figures"]["price"], "0.000027 USD", "{lines:?}");
        assert_eq!(scene.used().await, [(7, 2)]);
    });
}

/// Closing the page or pressing Stop has the effect of any disconnected client: the generated tokens are
/// charged once.
#[on_each_database]
fn stopped_answer_is_settled(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        let (world, path) = (&scene.world, path(&scene.place));
        let browser = world.browser(scene.ada.id).await;
        scene.upstream.script([vec![
            stream_head(),
            event(&json!({
                "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "org/engine-model",
                "choices": [{"index": 0, "delta": {"content": "one"}, "finish_reason": null}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
            })),
            support::upstream::Step::AwaitClose,
        ]]);
        let response = browser.post(world, &format!("{path}/stream"), &CHAT).open().await;
        assert_eq!(response.status(), 200);
        drop(response);
        scene.upstream.left(1).await;
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(7, 1)]);
    });
}
