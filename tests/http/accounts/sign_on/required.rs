//! Organizations that require a sign-on with their provider (docs/contract/organizations.md).

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;
use tollkeeper::ids::UserId;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};
use tollkeeper::trail::{self, Filter};

use super::{START, person, with_provider};
use support::http::Call;
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

const REQUIRED: (u16, &str) = (403, "sign_on_required");

/// Ada's organization, with a provider for `example.com`. Bob is an admin of it and a project owner.
pub(super) struct Scene {
    pub ada: TestUser,
    pub bob: TestUser,
    pub place: Place,
}

impl Scene {
    pub async fn new(world: &World, provider: &IdentityProvider, file: &ProvidersFile, more: &str) -> Self {
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        let place = world.place(&ada, "Acme").await;
        world.join_organization(&place, &bob, OrganizationRole::Admin).await;
        world.join_project(&place, &bob, ProjectRole::Owner).await;
        let scene = Self { ada, bob, place };
        file.write(world, &[("acme", &provider.issuer, &scene.settings(more))]);
        scene
    }

    /// Returns the provider's settings: it is trusted for `example.com`, and its users are connected without
    /// a confirmation.
    pub fn settings(&self, more: &str) -> String {
        format!(
            "organization = \"{}\"\ndomains = [\"example.com\"]\nlink = \"verified_email\"\n{more}",
            self.place.organization
        )
    }

    pub fn set(&self, world: &World, bearer: &str, value: bool) -> Call {
        let body = json!({"settings": {"require_sign_on": value}});
        world.call(Method::PUT, &self.place.organization_path()).bearer(bearer).json(&body)
    }

    /// Returns the path of a page of the organization.
    pub fn page(&self, path: &str) -> String {
        format!("/console/organizations/{}{path}", self.place.organization)
    }

    /// Returns the path of a page of the project.
    fn project_page(&self, path: &str) -> String {
        self.page(&format!("/projects/{}{path}", self.place.project))
    }

    pub async fn overview(&self, world: &World, jar: &mut Jar) -> u16 {
        jar.get(world, &self.page("")).await.status
    }
}

/// Returns a browser in which a user has signed in with the password.
pub(super) async fn with_password(world: &World, id: UserId) -> Jar {
    let mut jar = Jar::default();
    jar.0.insert("tollkeeper".to_owned(), world.browser(id).await.cookie);
    jar
}

async fn is_required(call: Call, what: &str) -> String {
    let answer = call.send().await;
    assert_eq!((answer.status, answer.code().as_str()), REQUIRED, "{what}: {}", answer.text);
    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

async fn set_email(world: &World, id: UserId, email: &str) {
    let mut tx = world.app.db.write().await.unwrap();
    let text = "UPDATE users SET email = $2, email_folded = $2 WHERE id = $1";
    sql(text).bind(id).bind(email).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database]
fn members_get_in_with_the_provider_only_and_keys_go_on(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, "").await;
        let Scene { ada, bob, place } = &scene;
        let (eve, fay) = (world.user("eve").await, world.user("fay").await);
        set_email(&world, fay.id, "fay@elsewhere.example").await;
        world.join_organization(place, &fay, OrganizationRole::Member).await;
        let (key_id, key) = world.key(bob, place, &json!({"name": "Prod"})).await;
        let changed = scene.set(&world, &ada.access_token, true).data().await;
        assert_eq!(changed["settings"]["require_sign_on"], true);

        let (organization, project) = (place.organization_path(), place.project_path());
        for path in [
            organization.clone(),
            format!("{organization}/members"),
            format!("{organization}/projects"),
            format!("{organization}/invitations"),
            format!("{organization}/billing/summary"),
            format!("{organization}/audit-log"),
            project.clone(),
            format!("{project}/usage"),
            format!("{project}/members"),
            format!("{project}/api-keys"),
            format!("{project}/api-keys/{key_id}"),
        ] {
            let message = is_required(world.get(&path).bearer(&bob.access_token), &path).await;
            let url = world.app.api.public_url.trim_end_matches('/');
            assert!(message.contains(&format!("with acme: open {url}{START} in a browser")), "{message}");
            world.get(&path).bearer(&ada.access_token).data().await;
            let stranger = world.get(&path).bearer(&eve.access_token).refused().await;
            assert_eq!(stranger, (403, "insufficient_role".to_owned()), "strangers learn nothing");
        }
        for (method, path, body) in [
            (Method::PUT, organization.clone(), json!({"description": "x"})),
            (Method::POST, format!("{organization}/projects"), json!({"name": "Other"})),
            (
                Method::POST,
                format!("{organization}/invitations"),
                json!({"email": "x@example.com", "role": "member"}),
            ),
            (Method::PUT, format!("{organization}/members/{}", bob.id), json!({"role": "member"})),
            (Method::DELETE, format!("{organization}/members/{}", bob.id), json!({})),
            (Method::POST, format!("{project}/api-keys"), json!({"name": "x"})),
            (Method::DELETE, format!("{project}/api-keys/{key_id}"), json!({})),
            (Method::PUT, format!("{project}/members/{}", bob.id), json!({"role": "viewer"})),
        ] {
            is_required(world.call(method, &path).bearer(&bob.access_token).json(&body), &path).await;
        }
        let chat = json!({"model": "svc-1", "messages": [{"role": "user", "content": "Hi"}]});
        let call = world.post("/v1/chat/completions", &chat).bearer(&bob.access_token);
        let call = call.header("openai-organization", &place.organization);
        let refused = call.header("openai-project", &place.project).send().await;
        assert_eq!((refused.status, refused.code().as_str()), REQUIRED, "a model call: {}", refused.text);
        let question = json!({"credential": bob.access_token, "operation": "chat", "model": "svc-1", "max_tokens": 9,
            "organization_id": place.organization, "project_id": place.project});
        let answer = world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!(answer["code"], REQUIRED.1, "{answer}");
        // The list contains the organization's name, and a key of the same user still works. Other members
        // don't have to sign on.
        let list = world.get("/v1/organizations").bearer(&bob.access_token).data().await;
        assert_eq!(list["organizations"][0]["name"], "Acme");
        world.post("/v1/chat/completions", &chat).bearer(&key).bare().await;
        world.get(&project).bearer(&key).data().await;
        world.get(&organization).bearer(&fay.access_token).data().await;

        scene.set(&world, &ada.access_token, false).data().await;
        world.get(&organization).bearer(&bob.access_token).data().await;
        let filter = Filter { action: "organization.changed".to_owned(), limit: 9, ..Filter::default() };
        let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
        assert_eq!(entries.len(), 2, "{entries:?}");
        assert!(entries.iter().all(|entry| entry.actor == ada.id.to_string()), "{entries:?}");
    });
}

#[on_each_database]
fn console_shows_the_name_and_the_way_in(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, "").await;
        let (settings, asking) = (scene.page("/settings"), scene.page("/settings/sign-on"));
        let mut owner = with_password(&world, scene.ada.id).await;
        let page = owner.get(&world, &settings).await.text;
        assert!(page.contains("acme belongs to this organization") && page.contains(&asking), "{page}");
        assert!(owner.get(&world, &asking).await.text.contains("Require sign-on"));
        let done = owner.post(&world, &asking, &[("is_required", "true")]).await;
        let to = format!("{settings}?done=organization_changed");
        assert_eq!((done.status, done.header("location")), (303, to.as_str()), "{}", done.text);
        assert!(owner.get(&world, &settings).await.text.contains("Members managed by acme"));

        let mut bob = with_password(&world, scene.bob.id).await;
        for path in [
            scene.page(""),
            scene.page("/projects"),
            scene.page("/members"),
            scene.page("/billing"),
            settings.clone(),
            asking.clone(),
            scene.project_page(""),
            scene.project_page("/playground"),
            scene.project_page("/api-keys/new"),
        ] {
            let answer = bob.get(&world, &path).await;
            assert_eq!(answer.status, 403, "{path}");
            let page = &answer.text;
            assert!(page.contains("Acme requires you to sign in with acme"), "{page}");
            assert!(page.contains(&format!("href=\"{START}?next={path}\"")), "{page}");
            assert!(!page.contains("Acme project") && !page.contains("class=\"side\""), "{page}");
        }
        let fields = [("model", "svc-1"), ("message", "Hi"), ("max_tokens", "20")];
        let sent = bob.post(&world, &scene.project_page("/playground"), &fields).await;
        let back = format!("href=\"{START}?next={}\"", scene.page(""));
        assert!(sent.status == 403 && sent.text.contains(&back), "{}: {}", sent.status, sent.text);

        // The link redirects to the provider and back, and opens a session of the provider.
        let before = bob.clone();
        let path = format!("{START}?next={}", scene.page("/members"));
        let answer = provider.sign_on(&world, &mut bob, &path, &person("7", "bob@example.com")).await;
        assert_eq!((answer.status, answer.header("location")), (303, scene.page("/members").as_str()));
        for path in ["", "/projects", "/members", "/billing", "/settings"] {
            assert_eq!(bob.get(&world, &scene.page(path)).await.status, 200, "{path}");
        }
        assert_eq!(bob.get(&world, &scene.project_page("/playground")).await.status, 200);
        let sent = bob.post(&world, &scene.project_page("/playground"), &fields).await;
        assert_ne!(sent.status, 403, "{}", sent.text);
        assert_eq!(before.clone().who(&world).await, None, "the previous session has ended");
        // An admin can't change the requirement.
        assert_eq!(bob.get(&world, &asking).await.status, 403);
        assert_eq!(bob.post(&world, &asking, &[("is_required", "false")]).await.status, 403);
        assert_eq!(scene.overview(&world, &mut owner).await, 200, "an owner's password stays valid");
        // Without a recent proof, the user is redirected to the page that asks for one, and then back.
        world.clock.advance_ms(15 * MINUTE_MS);
        let stale = owner.get(&world, &asking).await;
        let next = format!("/console/reauthenticate?next={asking}");
        assert_eq!((stale.status, stale.header("location")), (303, next.as_str()));
        let stale = owner.post(&world, &asking, &[("is_required", "false")]).await;
        assert_eq!((stale.status, stale.header("location")), (303, next.as_str()));
    });
}

#[on_each_database]
fn an_owner_in_person_requires_it_where_there_is_a_provider(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, "").await;
        let (_, key) = world.key(&scene.ada, &scene.place, &json!({"name": "Prod"})).await;
        let role = (403, "insufficient_role".to_owned());
        assert_eq!(scene.set(&world, &scene.bob.access_token, true).refused().await, role, "an admin");
        assert_eq!(scene.set(&world, &key, true).refused().await, role, "a key of an owner");
        file.write(&world, &[("acme", &provider.issuer, "")]);
        let none = scene.set(&world, &scene.ada.access_token, true).refused().await;
        assert_eq!(none, (409, "organization_has_no_provider".to_owned()));
        let page =
            with_password(&world, scene.ada.id).await.get(&world, &scene.page("/settings/sign-on")).await;
        assert!(page.status == 200 && page.text.contains("This organization has no provider"));
        assert!(!page.text.contains("<button class=\"main\""), "{}", page.text);
        file.write(&world, &[("acme", &provider.issuer, &scene.settings(""))]);
        world.clock.advance_ms(15 * MINUTE_MS);
        let stale = scene.set(&world, &scene.ada.access_token, true).refused().await;
        assert_eq!(stale, (403, "reauthentication_required".to_owned()));
        // A request that changes nothing needs no proof.
        scene.set(&world, &scene.ada.access_token, false).data().await;
        let fresh = world.session(scene.ada.id).await.access_token;
        let before = world.get(&scene.place.organization_path()).bearer(&fresh).send().await;
        scene.set(&world, &fresh, true).data().await;
        let after = world.get(&scene.place.organization_path()).bearer(&fresh).send().await;
        assert_eq!(after.json()["data"]["settings"]["require_sign_on"], true);
        assert_ne!(before.header("etag"), after.header("etag"));
        // Without the provider no one has to sign on, and the requirement can be switched off.
        file.write(&world, &[]);
        let path = scene.place.organization_path();
        world.get(&path).bearer(&world.session(scene.bob.id).await.access_token).data().await;
        let settings = with_password(&world, scene.ada.id).await.get(&world, &scene.page("/settings")).await;
        assert!(settings.text.contains("the requirement has no effect"), "{}", settings.text);
        scene.set(&world, &fresh, false).data().await;
    });
}

#[on_each_database]
fn neither_another_address_nor_another_provider_is_a_way_around(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, "provision = \"any\"").await;
        let other = IdentityProvider::start().await;
        let both = |id: &str| {
            let settings = scene.settings("provision = \"any\"");
            file.write(&world, &[(id, &provider.issuer, &settings), ("other", &other.issuer, "")]);
        };
        both("acme");
        scene.set(&world, &scene.ada.access_token, true).data().await;
        // Fay became a member by signing on, so the requirement applies to her regardless of her address.
        let mut fay = Jar::default();
        provider.sign_on(&world, &mut fay, START, &person("8", "fay@elsewhere.example")).await;
        assert_eq!(scene.overview(&world, &mut fay).await, 200);
        let id = super::connected(&world, &provider.issuer, "8").await.unwrap();
        set_email(&world, id, "fay@third.example").await;
        assert_eq!(scene.overview(&world, &mut with_password(&world, id).await).await, 403);
        // Bob is connected to both providers; only one belongs to the organization.
        world.connection(scene.bob.id, &other.issuer, "1").await;
        let mut bob = Jar::default();
        other.sign_on(&world, &mut bob, "/console/sign-in/other", &person("1", "bob@example.com")).await;
        assert_eq!(super::username(&world, &mut bob).await, "bob");
        assert_eq!(scene.overview(&world, &mut bob).await, 403);
        provider.sign_on(&world, &mut bob, START, &person("7", "bob@example.com")).await;
        assert_eq!(scene.overview(&world, &mut bob).await, 200);
        // The provider is identified by its issuer, not by its name in the configuration.
        both("renamed");
        assert_eq!(scene.overview(&world, &mut bob).await, 200);
        // After a connection is removed, the session that removed it no longer belongs to the provider.
        let list = bob.get(&world, "/console/account/connections").await.text;
        let form = list.split("action=\"").filter_map(|rest| rest.split('"').next());
        for action in form.filter(|action| action.ends_with("/delete")).map(str::to_owned).collect::<Vec<_>>()
        {
            bob.post(&world, &action, &[]).await;
        }
        assert_eq!(super::username(&world, &mut bob).await, "bob");
        assert_eq!(scene.overview(&world, &mut bob).await, 403);
    });
}

#[on_each_database]
fn an_owner_who_becomes_a_member_is_asked_at_once(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, "").await;
        scene.set(&world, &scene.ada.access_token, true).data().await;
        let eve = world.user("eve").await;
        world.join_organization(&scene.place, &eve, OrganizationRole::Owner).await;
        let path = scene.place.organization_path();
        world.get(&path).bearer(&eve.access_token).data().await;
        let change = world.call(Method::PUT, &format!("{path}/members/{}", eve.id));
        change.bearer(&scene.ada.access_token).json(&json!({"role": "admin"})).data().await;
        is_required(world.get(&path).bearer(&eve.access_token), "an admin now").await;
        let list: Value = world.get("/v1/organizations").bearer(&eve.access_token).data().await;
        assert_eq!(list["organizations"][0]["role"], "admin");
    });
}
