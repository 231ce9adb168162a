//! Limits on the number of organizations, projects, open invitations and API keys, and the right to invite.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::OrganizationRole;

use support::http::Answer;
use support::twin::Twin;
use support::world::{Place, TestUser, World, id};
use support::{Database, on_each_database};

const TWO_OF_EACH: [(&str, &str); 4] = [
    ("TOLLKEEPER_LIMITS__ORGANIZATIONS_PER_PERSON", "2"),
    ("TOLLKEEPER_LIMITS__PROJECTS_PER_ORGANIZATION", "2"),
    ("TOLLKEEPER_LIMITS__OPEN_INVITATIONS_PER_ORGANIZATION", "2"),
    ("TOLLKEEPER_LIMITS__API_KEYS_PER_PROJECT", "2"),
];

fn assert_refused(answer: &Answer, key: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (409, "limit_reached"), "{}", answer.text);
    assert_eq!(answer.header("x-should-retry"), "false");
    let error: Value = answer.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("`limits.{key}`, which is 2.")), "{message}");
}

/// Creates two objects, and asserts that a third one is refused; returns the ids of the two.
async fn make_two(make: impl AsyncFn(usize) -> Answer, key: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..2 {
        let answer = make(number).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        ids.push(answer.json()["data"]["id"].as_str().unwrap_or_default().to_owned());
    }
    assert_refused(&make(2).await, key);
    ids
}

#[on_each_database(&TWO_OF_EACH)]
async fn organizations_are_limited_by_creator(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    // Organizations that other users created don't count for Ada.
    let theirs = Place { organization: world.organization(&bob, "B").await, project: String::new() };
    world.join_organization(&theirs, &ada, OrganizationRole::Owner).await;
    let make = async |number: usize| {
        let body = json!({"name": format!("O{number}")});
        world.post("/v1/organizations", &body).bearer(&ada.access_token).send().await
    };
    let ids = make_two(make, "organizations_per_person").await;
    let path = format!("/v1/organizations/{}", ids[0]);
    world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
    assert_eq!(make(3).await.status, 200);
    assert_refused(&make(4).await, "organizations_per_person");
}

#[on_each_database(&TWO_OF_EACH)]
async fn projects_and_keys_are_limited(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let path = format!("/v1/organizations/{organization}/projects");
    let project = async |number: usize| {
        let body = json!({"name": format!("P{number}")});
        world.post(&path, &body).bearer(&ada.access_token).send().await
    };
    let projects = make_two(project, "projects_per_organization").await;
    let keys = format!("{path}/{}/api-keys", projects[0]);
    let key = async |number: usize| {
        let body = json!({"name": format!("K{number}")});
        world.post(&keys, &body).bearer(&ada.access_token).send().await
    };
    let made = make_two(key, "api_keys_per_project").await;
    world.call(Method::DELETE, &format!("{keys}/{}", made[0])).bearer(&ada.access_token).data().await;
    let last = key(3).await;
    assert_eq!(last.status, 200, "{}", last.text);
    // A key has the same limit as its creator.
    let secret = last.json()["data"]["key"].as_str().unwrap().to_owned();
    let again = world.post(&path, &json!({"name": "By key"})).bearer(&secret).send().await;
    assert_refused(&again, "projects_per_organization");
    let other = format!("{path}/{}", projects[1]);
    world.call(Method::DELETE, &other).bearer(&ada.access_token).data().await;
    assert_eq!(project(4).await.status, 200);
}

#[on_each_database(&TWO_OF_EACH)]
async fn open_invitations_are_limited(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let path = format!("/v1/organizations/{organization}/invitations");
    let invite = async |number: usize| {
        let body = json!({"email": format!("guest{number}@example.com")});
        let token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
        world.post(&path, &body).bearer(&token).send().await
    };
    make_two(invite, "open_invitations_per_organization").await;
    // Expired invitations don't count, even before they are marked as ended.
    world.clock.advance_ms(7 * DAY_MS);
    assert_eq!(invite(2).await.status, 200);
    assert_eq!(invite(3).await.status, 200);
    assert_refused(&invite(4).await, "open_invitations_per_organization");
}

#[on_each_database(&TWO_OF_EACH)]
async fn invitations_sent_again_are_limited_once_they_have_expired(world: World) {
    let ada = world.user("ada").await;
    let organization = world.organization(&ada, "Acme").await;
    let path = format!("/v1/organizations/{organization}/invitations");
    let send = async |path: &str, body: &Value| {
        let token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
        world.post(path, body).bearer(&token).send().await
    };
    let mut resend = Vec::new();
    for number in 0..4 {
        if number == 2 {
            world.clock.advance_ms(7 * DAY_MS);
        }
        let body = json!({"email": format!("guest{number}@example.com")});
        let invited = send(&path, &body).await.json();
        resend.push(format!("{path}/{}/resend", invited["data"]["invitation_id"].as_str().unwrap()));
    }
    assert_refused(&send(&resend[0], &json!({})).await, "open_invitations_per_organization");
    // An invitation that is already open doesn't count again.
    assert_eq!(send(&resend[2], &json!({})).await.status, 200);
    let token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
    let withdrawn = resend[3].trim_end_matches("/resend");
    world.call(Method::DELETE, withdrawn).bearer(&token).data().await;
    assert_eq!(send(&resend[0], &json!({})).await.status, 200);
    assert_refused(&send(&resend[1], &json!({})).await, "open_invitations_per_organization");
}

#[on_each_database]
fn no_limits_apply_while_they_are_off(database: Database) {
    let mut settings = TWO_OF_EACH.to_vec();
    settings.push(("TOLLKEEPER_LIMITS__ENABLED", "false"));
    database.run(&settings, async |world| {
        let ada = world.user("ada").await;
        let mut place = world.place(&ada, "Acme").await;
        for number in 0..3 {
            world.organization(&ada, &format!("O{number}")).await;
            place.project = world.project(&ada, &place.organization, &format!("P{number}")).await;
            let path = format!("{}/invitations", place.organization_path());
            let body = json!({"email": format!("guest{number}@example.com")});
            world.post(&path, &body).bearer(&ada.access_token).data().await;
        }
        for number in 0..3 {
            world.key(&ada, &place, &json!({"name": format!("K{number}")})).await;
        }
    });
}

#[on_each_database]
fn two_replicas_never_exceed_a_limit(database: Database) {
    let settings = [
        ("TOLLKEEPER_LIMITS__ORGANIZATIONS_PER_PERSON", "5"),
        ("TOLLKEEPER_LIMITS__PROJECTS_PER_ORGANIZATION", "6"),
        ("TOLLKEEPER_LIMITS__OPEN_INVITATIONS_PER_ORGANIZATION", "7"),
        ("TOLLKEEPER_LIMITS__API_KEYS_PER_PROJECT", "8"),
    ];
    database.run(&settings, async |world| {
        let twins = Twin::both(&world).await;
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let made = async |path: &str, body: &dyn Fn(usize) -> Value| {
            let calls = (0..32)
                .map(|number| twins[number % 2].post(path, &body(number)).bearer(&ada.access_token).send());
            let answers = join_all(calls).await;
            for answer in &answers {
                assert!(answer.status == 200 || answer.code() == "limit_reached", "{}", answer.text);
            }
            answers.iter().filter(|answer| answer.status == 200).count()
        };
        let named = |number: usize| json!({"name": format!("N{number}")});
        let guest = |number: usize| json!({"email": format!("guest{number}@example.com")});
        // An organization and a project already exist.
        assert_eq!(made("/v1/organizations", &named).await, 4);
        assert_eq!(made(&format!("{}/projects", place.organization_path()), &named).await, 5);
        assert_eq!(made(&format!("{}/invitations", place.organization_path()), &guest).await, 7);
        assert_eq!(made(&format!("{}/api-keys", place.project_path()), &named).await, 8);
    });
}

/// Marks the address as verified.
async fn verify(world: &World, user: &TestUser) {
    let mut tx = world.app.db.write().await.unwrap();
    let _verified =
        tollkeeper::accounts::store::users::set_email_verified(&mut tx, user.id, world.clock.now())
            .await
            .unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
async fn only_verified_users_invite_by_token_or_key(world: World) {
    let ada = world.unverified_user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let path = format!("{}/invitations", place.organization_path());
    for (number, caller) in [&ada.access_token, &key].into_iter().enumerate() {
        let body = json!({"email": format!("guest{number}@example.com")});
        let assert_refused = world.post(&path, &body).bearer(caller).refused().await;
        assert_eq!(assert_refused, (403, "email_not_verified".into()));
    }
    // The role is checked first.
    let bob = world.unverified_user("bob").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    let body = json!({"email": "guest@example.com"});
    let assert_refused = world.post(&path, &body).bearer(&bob.access_token).refused().await;
    assert_eq!(assert_refused, (403, "insufficient_role".into()));
    assert_eq!(
        tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap(),
        0
    );
    verify(&world, &ada).await;
    for (number, caller) in [&ada.access_token, &key].into_iter().enumerate() {
        let body = json!({"email": format!("guest{number}@example.com")});
        world.post(&path, &body).bearer(caller).data().await;
    }
    // Registered users can be added to a project by any member with the role.
    let project = format!("{}/members", place.project_path());
    let carol = world.unverified_user("carol").await;
    let added = world.post(&project, &json!({"user_id": carol.id, "role": "viewer"}));
    assert_eq!(id(&added.bearer(&ada.access_token).data().await), carol.id.to_string());
}
