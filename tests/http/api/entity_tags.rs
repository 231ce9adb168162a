//! `ETag` of reads, and `If-Match` of their changes (docs/contract/README.md#concurrent-changes).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use super::api_keys::fields;
use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{Place, TestUser, World};

/// An organization, its project and its key, with their paths, innermost first.
struct Objects {
    place: Place,
    key: String,
    paths: [String; 3],
}

async fn objects(world: &World, owner: &TestUser, name: &str) -> Objects {
    let place = world.place(owner, name).await;
    let (key_id, key) =
        world.old_key(owner, &place, &json!({"name": "k", "expires_at": "2026-03-10T13:00:00Z"})).await;
    let paths = [
        format!("{}/api-keys/{key_id}", place.project_path()),
        place.project_path(),
        place.organization_path(),
    ];
    Objects { place, key, paths }
}

async fn tag(world: &World, token: &str, path: &str) -> String {
    let answer = world.get(path).bearer(token).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.header("etag").to_owned()
}

/// Returns a call that changes the resource if it has this tag, or deletes it if the body is null.
fn change(world: &World, token: &str, path: &str, body: &Value, tag: &str) -> Call {
    let method = if body.is_null() { Method::DELETE } else { Method::PUT };
    let call = world.call(method, path).bearer(token).header("if-match", tag);
    if body.is_null() { call } else { call.json(body) }
}

fn is_changed_meanwhile(answer: &Answer) -> bool {
    answer.status == 412 && answer.code() == "precondition_failed" && answer.details().is_empty()
}

#[on_each_database]
async fn tag_changes_with_everything_that_a_read_shows_but_usage(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let objects = objects(&world, &ada, "Acme").await;
    let token = &ada.access_token;
    let [key, project, organization] = &objects.paths;
    world.join_organization(&objects.place, &bob, OrganizationRole::Admin).await;
    let mut seen = BTreeSet::new();
    for (path, patches) in [
        (
            project,
            vec![
                json!({"name": "Project 2"}),
                json!({"description": "new"}),
                json!({"settings": {"model": "svc-1"}}),
                json!({"settings": {"max_tokens": 100}}),
                json!({"settings": {"temperature": 0.5}}),
                json!({"visibility": "public"}),
            ],
        ),
        (
            key,
            fields::all()
                .iter()
                .map(|field| field.body(&field.changed))
                .chain([json!({"description": null})])
                .collect(),
        ),
        (
            organization,
            vec![
                json!({"name": "Acme 2"}),
                json!({"description": "new"}),
                json!({"settings": {"default_role": "admin"}}),
                json!({"settings": {"allow_public_projects": false}}),
            ],
        ),
    ] {
        let first = tag(&world, token, path).await;
        assert!(first.len() == 34 && first.starts_with('"') && first.ends_with('"'), "{first}");
        assert!(seen.insert(first.clone()), "{path}");
        // Neither the caller's role nor the method matters.
        assert_eq!(tag(&world, &bob.access_token, path).await, first);
        assert_eq!(world.call(Method::HEAD, path).bearer(token).send().await.header("etag"), first);
        // The clock doesn't move: a tag doesn't depend on times alone.
        for patch in patches {
            let answer = world.call(Method::PUT, path).json(&patch).bearer(token).send().await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let now = tag(&world, token, path).await;
            assert_eq!(answer.header("etag"), now, "a change returns the tag of the next read");
            assert!(seen.insert(now.clone()), "{path} {patch}");
            let again = world.call(Method::PUT, path).json(&patch).bearer(token).send().await;
            assert_eq!(again.header("etag"), now, "a change to the same values");
        }
    }
    let changed = async |path: &String| !seen.contains(&tag(&world, token, path).await);
    world.join_project(&objects.place, &bob, ProjectRole::Viewer).await;
    assert!(changed(project).await, "the number of members");
    let before = tag(&world, token, project).await;
    world.key(&ada, &objects.place, &json!({"name": "another"})).await;
    assert!(changed(project).await && tag(&world, token, project).await != before, "the number of keys");
    world.project(&ada, &objects.place.organization, "Another").await;
    assert!(changed(organization).await, "the number of projects");
    let before = tag(&world, token, organization).await;
    let eve = world.user("eve").await;
    world.join_organization(&objects.place, &eve, OrganizationRole::Member).await;
    assert!(
        changed(organization).await && tag(&world, token, organization).await != before,
        "the number of members"
    );

    let mut before = [String::new(), String::new(), String::new()];
    for (tag_before, path) in before.iter_mut().zip(&objects.paths) {
        *tag_before = tag(&world, token, path).await;
    }
    world.get("/v1/models").bearer(&objects.key).bare().await;
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    let key_id = key.rsplit('/').next().unwrap();
    let event = json!({"id": "1", "source": "test", "time": "2026-03-10T10:00:00Z", "api_key_id": key_id,
        "model": "svc-1", "kind": "chat", "prompt_tokens": 10, "completion_tokens": 5});
    let results = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(results["results"][0]["status"], "accepted");
    let shown = world.get(key).bearer(token).data().await["usage"].clone();
    assert_eq!((&shown["total_requests"], shown["last_used_at"].is_string()), (&json!(1), true));
    assert_eq!(world.get(project).bearer(token).data().await["usage"]["tokens"], 15);
    world.post(&format!("{key}/rotate"), &json!({})).bearer(token).data().await;
    for (tag_before, path) in before.iter().zip(&objects.paths) {
        assert_eq!(tag(&world, token, path).await, *tag_before, "usage and rotations: {path}");
    }

    let mut tx = world.app.db.write().await.unwrap();
    let text = "UPDATE users SET username = 'countess' WHERE id = $1";
    sql(text).bind(ada.id).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let by_countess = tag(&world, token, key).await;
    assert_ne!(by_countess, before[0], "the creator's name");
    world.clock.advance_ms(3_600_000);
    let later = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
    assert_eq!(world.get(key).bearer(&later).data().await["status"], "expired");
    assert_ne!(tag(&world, &later, key).await, by_countess, "the status");
    assert_eq!(tag(&world, &later, project).await, before[1]);
}

#[on_each_database]
async fn change_is_made_only_if_nothing_was_changed_meanwhile(world: World) {
    let ada = world.user("ada").await;
    let objects = objects(&world, &ada, "Acme").await;
    let token = &ada.access_token;
    for path in &objects.paths {
        let first = tag(&world, token, path).await;
        let send = async |body: Value, tag: &str| change(&world, token, path, &body, tag).send().await;
        let renamed = send(json!({"name": "first"}), &first).await;
        assert_eq!(renamed.status, 200, "{}", renamed.text);
        let second = renamed.header("etag").to_owned();
        assert_ne!(first, second);

        let other = "\"00000000000000000000000000000000\"";
        let shown = world.get(path).bearer(token).data().await;
        for wrong in [
            first.as_str(),
            other,
            &format!("{first}, {other}"),
            "\"x\"",
            &format!("W/{second}"),
            &format!("W/{second}, {first}"),
            &second.to_uppercase(),
        ] {
            for body in [json!({"name": "second"}), json!({"name": "first"}), json!({}), Value::Null] {
                let refused = send(body.clone(), wrong).await;
                assert!(is_changed_meanwhile(&refused), "{path} {body} {wrong}: {}", refused.text);
            }
        }
        for malformed in ["", "x", &second[1..], &format!("*, {second}"), &format!("{second} {first}")] {
            for body in [json!({"name": "second"}), json!({"nmae": 1}), Value::Null] {
                let refused = send(body, malformed).await;
                assert_eq!(
                    (refused.status, refused.code(), refused.details()),
                    (400, "invalid_request".to_owned(), vec!["if-match invalid_entity_tag".to_owned()]),
                    "{path} {malformed}"
                );
                assert!(refused.text.contains("`If-Match` must be"), "{}", refused.text);
            }
        }
        assert_eq!(world.get(path).bearer(token).data().await, shown, "a refused change changes nothing");
        assert_eq!(tag(&world, token, path).await, second);

        // Without the header, with `*`, and with a list that has the current tag.
        let unconditional = world.call(Method::PUT, path).json(&json!({"name": "third"})).bearer(token);
        assert_eq!(unconditional.send().await.status, 200);
        assert_eq!(send(json!({"name": "fourth"}), "*").await.status, 200);
        let third = tag(&world, token, path).await;
        assert_eq!(
            send(json!({"name": "fifth"}), &format!("{first}, W/{second} ,{third}")).await.status,
            200
        );
        let fourth = tag(&world, token, path).await;
        let lines =
            change(&world, token, path, &json!({"name": "sixth"}), &first).header("if-match", &fourth);
        assert_eq!(lines.send().await.status, 200, "several lines are one list");
    }
    for path in &objects.paths {
        let current = tag(&world, token, path).await;
        let deleted = change(&world, token, path, &Value::Null, &current).send().await;
        assert_eq!(deleted.status, 200, "{}", deleted.text);
        // A deleted resource has no version: 404, even with a tag or `*`.
        for gone in [current.as_str(), "*"] {
            let again = change(&world, token, path, &Value::Null, gone).send().await;
            assert_eq!(again.status, 404, "{}", again.text);
        }
    }
}

#[on_each_database]
async fn expected_version_is_asked_after_the_rights_and_before_the_state(world: World) {
    let (ada, bob, eve) = (world.user("ada").await, world.user("bob").await, world.user("eve").await);
    let objects = objects(&world, &ada, "Acme").await;
    world.join_organization(&objects.place, &bob, OrganizationRole::Member).await;
    world.join_project(&objects.place, &bob, ProjectRole::Viewer).await;
    world.key(&ada, &objects.place, &json!({"name": "taken"})).await;
    world.project(&ada, &objects.place.organization, "taken").await;
    world.organization(&ada, "taken").await;
    for path in &objects.paths {
        let current = tag(&world, &ada.access_token, path).await;
        for stranger in [&bob, &eve] {
            for tag in [current.as_str(), "\"x\"", "x"] {
                for body in [json!({"name": "mine"}), Value::Null] {
                    let refused = change(&world, &stranger.access_token, path, &body, tag).send().await;
                    assert_eq!((refused.status, refused.code()), (403, "insufficient_role".into()), "{path}");
                }
            }
        }
        let taken = json!({"name": "taken"});
        let refused = change(&world, &ada.access_token, path, &taken, "\"x\"").send().await;
        assert!(is_changed_meanwhile(&refused), "{}", refused.text);
        let refused = change(&world, &ada.access_token, path, &taken, &current).send().await;
        assert_eq!((refused.status, refused.code()), (409, "name_taken".into()));
    }
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn one_of_concurrent_changes_with_one_tag_is_made(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    for round in 0..4 {
        let objects = objects(&world, &ada, &format!("Acme {round}")).await;
        for path in &objects.paths {
            let current = tag(&world, token, path).await;
            let bodies: Vec<_> = (0..8).map(|number| json!({"description": number.to_string()})).collect();
            let calls = bodies.iter().map(|body| change(&world, token, path, body, &current).send());
            let answers = join_all(calls).await;
            let made: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
            let refused = answers.iter().filter(|answer| is_changed_meanwhile(answer)).count();
            assert_eq!((made.len(), refused), (1, 7), "{path}");
            let read = world.get(path).bearer(token).send().await;
            assert_eq!(read.header("etag"), made[0].header("etag"));
            let written = made[0].json()["data"]["description"].clone();
            assert_eq!(read.json()["data"]["description"], written, "the successful change remains");
        }
        for path in &objects.paths {
            let current = tag(&world, token, path).await;
            let body = json!({"description": "kept"});
            let calls = [&body, &Value::Null].map(|body| change(&world, token, path, body, &current).send());
            let answers = join_all(calls).await;
            let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
            // After a deletion nothing is left to change.
            assert!([[200, 412], [404, 200]].contains(&[statuses[0], statuses[1]]), "{path} {statuses:?}");
            if statuses[1] != 200 {
                change(&world, token, path, &Value::Null, "*").data().await;
            }
        }
    }
}

#[on_each_database(&[("TOLLKEEPER_CORS_ORIGINS", "https://app.example")])]
async fn pages_of_an_allowed_origin_can_read_the_tag(world: World) {
    let ada = world.user("ada").await;
    let objects = objects(&world, &ada, "Acme").await;
    for path in &objects.paths {
        let call = world.get(path).bearer(&ada.access_token).header("origin", "https://app.example");
        let answer = call.send().await;
        let exposed = answer.header("access-control-expose-headers");
        assert!(exposed.split(',').any(|name| name.trim() == "etag"), "{exposed}");
        let asking = world.call(Method::OPTIONS, path).header("origin", "https://app.example");
        let asking = asking.header("access-control-request-method", "PUT");
        let allowed = asking.header("access-control-request-headers", "if-match").send().await;
        assert_eq!(allowed.header("access-control-allow-headers"), "if-match");
    }
}
