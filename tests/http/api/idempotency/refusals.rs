//! Refusals that are stored and refusals that aren't, and the errors of malformed keys.

use serde_json::json;
use tollkeeper::clock::HOUR_MS;
use tollkeeper::tenants::roles::OrganizationRole;

use super::{Request, assert_repeats, change, number, scene};
use support::world::World;
use support::{Database, on_each_database};

#[on_each_database]
async fn refusal_of_the_operation_is_kept(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let paths = [scene.place.organization_path(), scene.place.project_path()];
    let public = json!({"name": "Public", "visibility": "public"});
    change(&world, "UPDATE organizations SET allow_public_projects = 0").await;
    let nobody = json!({"user_id": "user_01kfz3v9xee8tb2m6h0q5w7r4n", "role": "viewer"});
    let cases = [
        ("/v1/organizations".to_owned(), json!({"name": "Acme a"}), 409, "name_taken"),
        (format!("{}/members", paths[1]), nobody, 404, "user_not_found"),
        (format!("{}/projects", paths[0]), public, 400, "public_projects_not_allowed"),
        (format!("{}/invitations", paths[0]), json!({"email": "ownera@example.com"}), 409, "already_member"),
    ];
    for (path, body, status, code) in cases {
        let request = Request { operation: code.to_owned(), path, body };
        let first = request.send(&world, token, "key").await;
        assert_eq!((first.status, first.code().as_str()), (status, code), "{}", first.text);
        assert_repeats(&request.send(&world, token, "key").await, &first, code);
    }
    // The obstacle is gone, but the same key gets the same answer; a new key succeeds.
    change(&world, "UPDATE organizations SET allow_public_projects = 1").await;
    let public = json!({"name": "Public", "visibility": "public"});
    let request = Request { operation: String::new(), path: format!("{}/projects", paths[0]), body: public };
    let kept = request.send(&world, token, "key").await;
    assert_eq!((kept.status, kept.header("idempotency-replayed")), (400, "true"));
    assert_eq!(request.send(&world, token, "new").await.status, 200);
}

#[on_each_database]
async fn refusal_before_the_operation_is_not_kept(world: World) {
    let scene = scene(&world, "a").await;
    let bob = world.user("bob").await;
    for request in scene.requests.iter().filter(|request| request.operation != "create_organization") {
        let what = &request.operation;
        let refused = request.keyed(&world, "no token", "key").refused().await;
        assert_eq!(refused, (401, "invalid_access_token".into()), "{what}");
        let stranger = request.keyed(&world, &bob.access_token, "key").refused().await;
        assert_eq!(stranger, (403, "insufficient_role".into()), "{what}");
        let nowhere =
            Request { path: request.path.replace(&scene.place.organization, "org_x"), ..request.clone() };
        let nowhere = nowhere.keyed(&world, &scene.owner.access_token, "key").refused().await;
        assert_eq!(nowhere, (404, "organization_not_found".into()), "{what}");
        if !request.body.is_null() {
            for (body, code) in [("{", "invalid_json"), ("{\"x\":1}", "invalid_request")] {
                let bad = request.keyed(&world, &scene.owner.access_token, "key").raw(body).refused().await;
                assert_eq!(bad, (400, code.into()), "{what}");
            }
        }
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, 0);

    // The same key, first with the right to create API keys, then without it.
    world.join_organization(&scene.place, &bob, OrganizationRole::Owner).await;
    let create = scene.request("create_api_key");
    let first = create.send(&world, &bob.access_token, "key").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.text);
    assert_repeats(&create.send(&world, &bob.access_token, "key").await, &first, "with the right");
    change(&world, format!("DELETE FROM organization_members WHERE user_id = '{}'", bob.id)).await;
    let refused = create.send(&world, &bob.access_token, "key").await;
    assert_eq!((refused.status, refused.header("idempotency-replayed")), (403, ""), "{}", refused.text);
    let ended = create.keyed(&world, "no token", "key").refused().await;
    assert_eq!(ended, (401, "invalid_access_token".into()));
    world.join_organization(&scene.place, &bob, OrganizationRole::Owner).await;
    assert_repeats(
        &create.send(&world, &bob.access_token, "key").await,
        &first,
        "after the permission was restored",
    );
}

#[on_each_database]
async fn missing_right_inside_the_operation_is_not_kept(world: World) {
    let scene = scene(&world, "a").await;
    let eve = world.unverified_user("eve").await;
    world.join_organization(&scene.place, &eve, OrganizationRole::Owner).await;
    let invite = scene.request("create_invitation");
    let refused = invite.keyed(&world, &eve.access_token, "key").refused().await;
    assert_eq!(refused, (403, "email_not_verified".into()));
    change(&world, format!("UPDATE users SET email_verified_at = 1 WHERE id = '{}'", eve.id)).await;
    let done = invite.send(&world, &eve.access_token, "key").await;
    assert_eq!((done.status, done.header("idempotency-replayed")), (200, ""), "{}", done.text);
}

#[on_each_database]
fn rates_are_not_kept(database: Database) {
    let settings = [
        ("TOLLKEEPER_LIMITS__MAILS_PER_RECIPIENT_HOUR", "1"),
        ("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE", "20"),
    ];
    database.run(&settings, async |world| {
        let scene = scene(&world, "a").await;
        let token = &scene.owner.access_token;
        // The operation's own limit: the scene's invitation has used it up.
        let resend = scene.request("resend_invitation");
        for _ in 0..2 {
            let refused = resend.send(&world, token, "key").await;
            assert_eq!((refused.status, refused.code().as_str()), (429, "too_many_attempts"));
            assert_eq!(refused.header("idempotency-replayed"), "");
        }
        // The limit on all writes: replays count too.
        let create = scene.request("create_project");
        let first = create.send(&world, token, "key").await;
        assert_eq!(first.status, 200, "{}", first.text);
        let mut limited = create.send(&world, token, "key").await;
        for _ in 0..20 {
            limited = create.send(&world, token, "key").await;
        }
        assert_eq!((limited.status, limited.code().as_str()), (429, "rate_limited"));
        world.clock.advance_ms(HOUR_MS - 1000);
        assert_repeats(&create.send(&world, token, "key").await, &first, "after the rate limit has reset");
        let next = world.session(scene.owner.id).await;
        world.clock.advance_ms(1000);
        let sent = resend.send(&world, &next.access_token, "key").await;
        assert_eq!((sent.status, sent.header("idempotency-replayed")), (200, ""), "{}", sent.text);
    });
}

#[on_each_database]
async fn failure_is_not_kept(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    for request in &scene.requests {
        let what = &request.operation;
        // An operation writes its audit entry last.
        change(&world, "ALTER TABLE audit_log RENAME TO audit_log_away").await;
        for _ in 0..2 {
            let failed = request.send(&world, token, "key").await;
            assert_eq!(
                (failed.status, failed.code().as_str()),
                (500, "internal_error"),
                "{what}: {}",
                failed.text
            );
            assert_eq!(failed.header("idempotency-replayed"), "", "{what}");
        }
        assert_eq!(
            number(&world, "SELECT COUNT(*) FROM idempotency_keys WHERE answer IS NULL").await,
            0,
            "{what}"
        );
        change(&world, "ALTER TABLE audit_log_away RENAME TO audit_log").await;
        let first = request.send(&world, token, "key").await;
        assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{what}: {}", first.text);
        assert_repeats(&request.send(&world, token, "key").await, &first, what);
    }
}

#[on_each_database]
async fn malformed_keys_are_refused(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let long = "k".repeat(256);
    for request in &scene.requests {
        for key in ["", "two words", "tab\there", long.as_str()] {
            let answer = request.send(&world, token, key).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{}", answer.text);
            assert_eq!(answer.details(), ["idempotency-key invalid_idempotency_key"]);
            assert_eq!(answer.json()["error"]["param"], "idempotency-key");
        }
        let twice = request.keyed(&world, token, "a").header("idempotency-key", "a").send().await;
        assert_eq!(twice.details(), ["idempotency-key invalid_idempotency_key"]);
        let bytes = request.call(&world, token).bytes("idempotency-key", "clé".as_bytes()).send().await;
        assert_eq!(bytes.details(), ["idempotency-key invalid_idempotency_key"]);
        // A caller without access gets no information about the mistake.
        let stranger = request.keyed(&world, "no token", "").refused().await;
        assert_eq!(stranger, (401, "invalid_access_token".into()));
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, 0);
    let create = scene.request("create_organization");
    let longest = "~".repeat(255);
    let first = create.send(&world, token, &longest).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_repeats(&create.send(&world, token, &longest).await, &first, "the longest key");
    let quoted = Request { body: json!({"name": "Quoted"}), ..create.clone() };
    let first = quoted.send(&world, token, "\"8e03978e-40d5\"").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""));
    // The quotes are part of the key.
    let other = quoted.keyed(&world, token, "8e03978e-40d5").refused().await;
    assert_eq!(other, (409, "name_taken".into()));
}
