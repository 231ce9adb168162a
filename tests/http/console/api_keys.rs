//! API keys in the console.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use super::pages::{check_headers, check_size};
use support::billed::{Usage, charge};
use support::console::{Browser, hidden};
use support::http::Answer;
use support::on_each_database;
use support::world::{Place, TestUser, World};

struct Scene {
    ada: TestUser,
    place: Place,
    browser: Browser,
    /// The path of the list of keys.
    keys: String,
}

impl Scene {
    async fn new(world: &World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let keys =
            format!("/console/organizations/{}/projects/{}/api-keys", place.organization, place.project);
        Self { browser: world.browser(ada.id).await, ada, place, keys }
    }

    /// Reads the list of keys or one key through the API.
    async fn read(&self, world: &World, path: &str) -> Value {
        let path = format!("{}/api-keys{path}", self.place.project_path());
        world.get(&path).bearer(&self.ada.access_token).data().await
    }

    async fn names(&self, world: &World) -> Vec<String> {
        let listed = self.read(world, "").await;
        let keys = listed["api_keys"].as_array().unwrap();
        keys.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Returns the secret that a page shows.
fn secret(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("cache-control"), "no-store");
    let shown = answer.text.split("<code id=\"secret\"").nth(1).unwrap_or_else(|| panic!("{}", answer.text));
    shown.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned()
}

/// Returns the status of a call with a key.
async fn use_key(world: &World, secret: &str) -> u16 {
    world.get("/v1/models").bearer(secret).send().await.status
}

#[on_each_database]
async fn key_is_made_once_and_its_secret_shown_once(world: World) {
    let scene = Scene::new(&world).await;
    let (browser, new) = (&scene.browser, format!("{}/new", scene.keys));
    assert!(browser.page(&world, &scene.keys).await.contains("Create a key"));
    let page = browser.page(&world, &new).await;
    let new_id = hidden(&page, "new_id");
    assert!(page.contains("value=\"90\" selected") && page.contains("value=\"svc-1-turbo\""), "{page}");
    let good = [
        ("new_id", new_id.as_str()),
        ("name", "Checkout"),
        ("description", ""),
        ("shown", "permissions"),
        ("permissions", "chat"),
        ("permissions", "models"),
        ("lasts", "90"),
        ("last_day", ""),
        ("restrictions.allowed_ips", "127.0.0.0/8\r\n::/0\r\n"),
        ("restrictions.rate_limit", "60"),
        ("restrictions.max_tokens", ""),
        ("restrictions.models", ""),
        ("restrictions.models", "svc-1"),
    ];
    let answer = browser.post(&world, &new, &good).send().await;
    check_headers(&answer, &new);
    check_size(&answer, &new);
    let shown = secret(&answer);
    let base = &world.app.api.public_url;
    for text in [
        format!("curl {base}/v1/chat/completions"),
        format!("OpenAI(base_url=&#34;{base}/v1&#34;, api_key=&#34;{shown}&#34;)"),
        format!("new OpenAI({{ baseURL: &#34;{base}/v1&#34;, apiKey: &#34;{shown}&#34; }})"),
        "<summary>Claude Code</summary>".to_owned(),
        format!(
            "export ANTHROPIC_BASE_URL={base}\nexport ANTHROPIC_AUTH_TOKEN={shown}\nexport ANTHROPIC_MODEL=svc-1\n"
        ),
        format!("base_url = &#34;{base}/v1&#34;"),
    ] {
        assert!(answer.text.contains(&text), "{text}: {}", answer.text);
    }
    // Each tool has a page.
    let guides: Vec<_> = answer.text.split(&format!("href=\"{base}/docs/")).skip(1).collect();
    assert_eq!(guides.len(), answer.text.matches("<details class=\"tool\"").count());
    for guide in guides {
        let path = format!("/docs/{}", guide.split('"').next().unwrap());
        assert_eq!(world.get(&path).send().await.status, 200, "{path}");
    }
    assert!(answer.text.contains("data-kept") && !answer.header("location").contains("tk_"));
    assert_eq!(use_key(&world, &shown).await, 200);

    for name in ["Checkout", "Another name"] {
        let again: Vec<_> =
            good.into_iter().map(|(n, v)| if n == "name" { (n, name) } else { (n, v) }).collect();
        let answer = browser.post(&world, &new, &again).send().await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        assert!(
            answer.text.contains("This key already exists") && !answer.text.contains("tk_"),
            "{}",
            answer.text
        );
    }
    assert_eq!(scene.names(&world).await, ["Checkout"]);
    let id = scene.read(&world, "").await["api_keys"][0]["id"].as_str().unwrap().to_owned();
    let key = scene.read(&world, &format!("/{id}")).await;
    assert_eq!(key["expires_at"], json!(world.clock.now().plus_ms(90 * DAY_MS).to_string()));
    assert_eq!(key["permissions"], json!(["chat", "models"]));
    let restrictions = json!({"allowed_ips": ["127.0.0.0/8", "::/0"], "rate_limit": 60, "max_tokens": null, "models": ["svc-1"]});
    assert_eq!(key["restrictions"], restrictions);

    let path = format!("{}/{id}", scene.keys);
    let page = browser.page(&world, &path).await;
    for text in [
        "<h1>Checkout</h1>",
        "Chat, List models",
        "<code>127.0.0.0/8</code>, <code>::/0</code>",
        "ada@example.com",
        "export ANTHROPIC_AUTH_TOKEN=YOUR_KEY\n",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("tk_"), "{page}");
    let list = browser.page(&world, &scene.keys).await;
    assert!(list.contains("2 addresses, 60 requests per minute, 1 model") && !list.contains("tk_"), "{list}");

    let page = browser.page(&world, &format!("{path}/delete")).await;
    assert!(page.contains("Delete the key"), "{page}");
    let gone = browser.done(&world, &format!("{path}/delete"), &[]).await;
    assert!(browser.page(&world, &gone).await.contains("The API key is deleted"));
    assert_eq!(use_key(&world, &shown).await, 401);
    let answer = browser.post(&world, &new, &good).send().await;
    assert_eq!(answer.status, 409, "a deleted key isn't created again: {}", answer.text);
    assert_eq!(browser.get(&world, &path).send().await.status, 404);
    assert_eq!(browser.post(&world, &format!("{path}/delete"), &[]).send().await.status, 404);
}

#[on_each_database]
async fn mistakes_in_a_new_key_are_told_and_make_nothing(world: World) {
    let scene = Scene::new(&world).await;
    let (browser, new) = (&scene.browser, format!("{}/new", scene.keys));
    let new_id = hidden(&browser.page(&world, &new).await, "new_id");
    let wrong = [
        ("new_id", new_id.as_str()),
        ("name", ""),
        ("description", "\"><script>alert(1)</script>"),
        ("shown", "permissions"),
        ("lasts", "day"),
        ("last_day", "2001-01-01"),
        ("restrictions.allowed_ips", "::1\r\nhere"),
        ("restrictions.rate_limit", "0"),
        ("restrictions.max_tokens", "12 or so"),
        ("restrictions.models", ""),
        ("restrictions.models", "svc-9"),
    ];
    let answer = browser.post(&world, &new, &wrong).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    check_headers(&answer, &new);
    for field in [
        "name",
        "permissions",
        "last_day",
        "restrictions.allowed_ips",
        "restrictions.rate_limit",
        "restrictions.max_tokens",
        "restrictions.models",
    ] {
        assert!(answer.text.contains(&format!("<a href=\"#{field}\">")), "{field}: {}", answer.text);
        assert!(answer.text.contains(&format!("id=\"{field}-mistake\"")), "{field}: {}", answer.text);
    }
    for text in [
        "Allowed IPs, line 2 must be",
        "value=\"12 or so\"",
        "::1\r\nhere",
        "value=\"2001-01-01\"",
        "value=\"day\" selected",
    ] {
        assert!(answer.text.contains(text), "{text}: {}", answer.text);
    }
    assert!(!answer.text.contains("<script>alert"), "{}", answer.text);
    assert_eq!(hidden(&answer.text, "new_id"), new_id);
    for (lasts, last_day) in [("day", ""), ("day", "soon"), ("ever", "")] {
        let fields = [("new_id", new_id.as_str()), ("name", "k"), ("lasts", lasts), ("last_day", last_day)];
        let answer = browser.post(&world, &new, &fields).send().await;
        assert_eq!(answer.status, 400, "{lasts} {last_day}: {}", answer.text);
    }

    // Sealed ids of another user and of another project, and no id.
    let eve = world.user("eve").await;
    world.join_organization(&scene.place, &eve, OrganizationRole::Admin).await;
    let eve = world.browser(eve.id).await;
    let project = world.project(&scene.ada, &scene.place.organization, "Other").await;
    let elsewhere = new.replace(&scene.place.project, &project);
    for (who, path, id) in [
        (&eve, &new, new_id.as_str()),
        (browser, &elsewhere, &new_id),
        (browser, &new, ""),
        (browser, &new, "AAAA"),
    ] {
        let answer = who.post(&world, path, &[("new_id", id), ("name", "k")]).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(
            answer.text.contains("The form expired") && answer.text.contains("value=\"k\""),
            "{}",
            answer.text
        );
        assert_ne!(hidden(&answer.text, "new_id"), id);
    }
    assert_eq!(scene.names(&world).await, Vec::<String>::new());

    let today = world.clock.now().day();
    let fields =
        [("new_id", new_id.as_str()), ("name", "k"), ("lasts", "day"), ("last_day", &today.to_string())];
    secret(&browser.post(&world, &new, &fields).send().await);
    let listed = scene.read(&world, "").await;
    assert_eq!(listed["api_keys"][0]["expires_at"], json!(today.plus(1).start().to_string()));
    world.clock.advance_ms(1);
    let new_id = hidden(&browser.page(&world, &new).await, "new_id");
    let taken =
        browser.post(&world, &new, &[("new_id", &new_id), ("name", "K"), ("lasts", "always")]).send().await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    assert!(taken.text.contains("id=\"name-mistake\""), "{}", taken.text);
    secret(
        &browser.post(&world, &new, &[("new_id", &new_id), ("name", "l"), ("lasts", "always")]).send().await,
    );
    assert_eq!(scene.read(&world, "").await["api_keys"][0]["expires_at"], json!(null));

    world.clock.advance_ms(DAY_MS);
    let browser = world.browser(scene.ada.id).await;
    for (query, names) in [
        ("status=active", vec!["l"]),
        ("status=expired", vec!["k"]),
        ("search=L&status=", vec!["l"]),
        ("search=z", vec![]),
    ] {
        let page = browser.page(&world, &format!("{}?{query}", scene.keys)).await;
        for name in ["k", "l"] {
            assert_eq!(page.contains(&format!("\">{name}</a>")), names.contains(&name), "{query}: {page}");
        }
        assert_eq!(page.contains("Nothing matches."), names.is_empty(), "{query}");
    }
}

#[on_each_database]
async fn rotation_by_a_form_happens_once(world: World) {
    let scene = Scene::new(&world).await;
    let browser = &scene.browser;
    let (id, first) = world.key(&scene.ada, &scene.place, &json!({"name": "Checkout"})).await;
    let key = format!("{}/{id}", scene.keys);
    let (rotate, end) = (format!("{key}/rotate"), format!("{key}/end-rotation"));
    let page = browser.page(&world, &rotate).await;
    let version = hidden(&page, "version");
    assert!(
        page.contains("value=\"86400\"") && page.contains("value=\"3600\"") && page.contains("value=\"0\""),
        "{page}"
    );
    for grace in ["86401", "-1", "long"] {
        let answer =
            browser.post(&world, &rotate, &[("version", &version), ("grace_seconds", grace)]).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("id=\"grace_seconds-mistake\""), "{}", answer.text);
        assert_eq!(hidden(&answer.text, "version"), version);
    }
    let form = [("version", version.as_str()), ("grace_seconds", "3600")];
    let answer = browser.post(&world, &rotate, &form).send().await;
    check_headers(&answer, &rotate);
    let second = secret(&answer);
    assert_ne!(first, second);
    for form in
        [form, [("version", &version), ("grace_seconds", "0")], [("version", ""), ("grace_seconds", "0")]]
    {
        let again = browser.post(&world, &rotate, &form).send().await;
        assert_eq!(again.status, 409, "{}", again.text);
        assert!(
            again.text.contains("This key was already rotated") && !again.text.contains("tk_"),
            "{}",
            again.text
        );
    }
    assert_eq!([use_key(&world, &first).await, use_key(&world, &second).await], [200, 200]);
    let page = browser.page(&world, &key).await;
    assert!(page.contains("This key has two secrets") && page.contains("Revoke old secret"), "{page}");
    let ends = world.clock.now().plus_ms(3_600_000);
    assert!(page.contains(&format!("datetime=\"{ends}\" data-countdown")), "{page}");
    assert!(browser.page(&world, &rotate).await.contains("becomes the previous secret"));

    let place = browser.done(&world, &end, &[]).await;
    let page = browser.page(&world, &place).await;
    assert!(page.contains("The previous secret is revoked") && !page.contains("two secrets"), "{page}");
    assert_eq!([use_key(&world, &first).await, use_key(&world, &second).await], [401, 200]);
    let again = browser.post(&world, &end, &[]).send().await;
    assert_eq!(again.status, 409, "{}", again.text);
    check_headers(&again, &end);

    let version = hidden(&browser.page(&world, &rotate).await, "version");
    let answer = browser.post(&world, &rotate, &[("version", &version), ("grace_seconds", "0")]).send().await;
    assert!(answer.text.contains("The previous secret no longer works"), "{}", answer.text);
    let third = secret(&answer);
    assert_eq!([use_key(&world, &second).await, use_key(&world, &third).await], [401, 200]);
    let page = browser.page(&world, &key).await;
    assert!(!page.contains("two secrets"), "{page}");
}

#[on_each_database]
async fn key_is_edited_by_what_was_changed(world: World) {
    let scene = Scene::new(&world).await;
    let browser = &scene.browser;
    let body = json!({"name": "Checkout", "description": "<i>it</i>", "restrictions": {"rate_limit": 5, "models": ["svc-1"]}});
    let (id, _) = world.key(&scene.ada, &scene.place, &body).await;
    let mut tx = world.app.db.write().await.unwrap();
    let retired = "UPDATE api_keys SET models = '[\"svc-1\",\"gone\"]' WHERE id = $1";
    sql(retired).bind(id.as_str()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let (key, edit) = (format!("{}/{id}", scene.keys), format!("{}/{id}/edit", scene.keys));
    let page = browser.page(&world, &edit).await;
    assert!(
        page.contains("value=\"gone\" checked> gone (retired)") && page.contains("&#60;i&#62;it"),
        "{page}"
    );
    let version = hidden(&page, "version");
    let mut form = vec![
        ("version", version.as_str()),
        ("was.restrictions.models", "svc-1"),
        ("was.restrictions.models", "gone"),
        ("name", "Till"),
        ("description", ""),
        ("shown", "permissions"),
        ("permissions", "chat"),
        ("restrictions.rate_limit", ""),
        ("restrictions.max_tokens", "100"),
        ("restrictions.models", ""),
        ("restrictions.models", "svc-1"),
        ("restrictions.models", "gone"),
    ];
    let saved = browser.done(&world, &edit, &form).await;
    let page = browser.page(&world, &saved).await;
    assert!(page.contains("Changes saved.") && page.contains("<h1>Till</h1>"), "{page}");
    let found = scene.read(&world, &format!("/{id}")).await;
    assert_eq!(
        found["restrictions"],
        json!({"allowed_ips": null, "rate_limit": null, "max_tokens": 100, "models": ["svc-1", "gone"]})
    );
    assert_eq!((&found["description"], &found["permissions"]), (&json!(null), &json!(["chat"])));

    let version = hidden(&browser.page(&world, &edit).await, "version");
    form[0] = ("version", &version);
    form.push(("restrictions.models", "svc-1-pro"));
    let answer = browser.post(&world, &edit, &form).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.text.contains("id=\"restrictions.models-mistake\""),
        "a retired model can't be granted again: {}",
        answer.text
    );
    form.retain(|(_, value)| !["gone", "svc-1", "svc-1-pro"].contains(value));
    form.push(("was.restrictions.models", "svc-1"));
    browser.done(&world, &edit, &form).await;
    assert_eq!(scene.read(&world, &format!("/{id}")).await["restrictions"]["models"], json!(null));
    let version = hidden(&browser.page(&world, &edit).await, "version");
    let none = [("version", version.as_str()), ("name", ""), ("shown", "permissions")];
    let answer = browser.post(&world, &edit, &none).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.text.contains("id=\"permissions-mistake\"") && answer.text.contains("id=\"name-mistake\""),
        "{}",
        answer.text
    );
    assert!(browser.page(&world, &key).await.contains("<h1>Till</h1>"));
}

#[on_each_database]
async fn usage_of_a_key_is_that_of_its_last_30_days(world: World) {
    let scene = Scene::new(&world).await;
    let (id, _) = world.old_key(&scene.ada, &scene.place, &json!({"name": "Checkout"})).await;
    let (other, _) = world.old_key(&scene.ada, &scene.place, &json!({"name": "Other"})).await;
    let path = format!("{}/{id}", scene.keys);
    assert!(
        scene
            .browser
            .page(&world, &path)
            .await
            .contains("<p class=\"soft\">No usage in this period. All time: 0 requests, 0 tokens.</p>")
    );
    let today = world.clock.now().day();
    let place = &scene.place;
    for (key, day, model) in [
        (&id, 0, "svc-1"),
        (&id, 0, "svc-1-pro"),
        (&id, -29, "svc-1"),
        (&id, -30, "svc-1"),
        (&other, 0, "svc-1"),
    ] {
        charge(&world, Usage { place, key, model, day: today.plus(day), prompt: 1000, completion: 10 }).await;
    }
    let page = scene.browser.page(&world, &path).await;
    for text in [
        format!(
            "<th scope=\"row\"><time datetime=\"{today}\">10 Mar 2026</time></th><td class=\"number\">2</td>\
             <td class=\"number\">2,000</td><td class=\"number\">20</td>"
        ),
        format!(
            "<th scope=\"row\"><time datetime=\"{}\">9 Feb 2026</time></th><td class=\"number\">1</td>",
            today.plus(-29)
        ),
        "<th scope=\"row\">All 30 days</th><td class=\"number\">3</td><td class=\"number\">3,000</td>"
            .to_owned(),
        "All time: 4 requests, 4,040 tokens.".to_owned(),
    ] {
        assert!(page.contains(&text), "{text}: {page}");
    }
    assert!(!page.contains(&today.plus(-30).to_string()) && !page.contains(">8 Feb 2026"), "{page}");
}

#[on_each_database]
async fn keys_of_higher_roles_can_be_seen_ended_and_deleted_only(world: World) {
    let scene = Scene::new(&world).await;
    let body = json!({"name": "\"><script>alert(1)</script>"});
    let (id, _) = world.key(&scene.ada, &scene.place, &body).await;
    let abe = world.user("abe").await;
    world.join_organization(&scene.place, &abe, OrganizationRole::Member).await;
    world.join_project(&scene.place, &abe, ProjectRole::Admin).await;
    let browser = world.browser(abe.id).await;
    let key = format!("{}/{id}", scene.keys);
    let answer = browser.get(&world, &key).send().await;
    assert_eq!(answer.status, 200);
    for hidden in ["/edit\"", "/rotate\"", "<script>alert"] {
        assert!(!answer.text.contains(hidden), "{hidden}: {}", answer.text);
    }
    assert!(
        answer.text.contains("/delete\"")
            && answer.text.contains("Only people with at least the roles of ada")
    );
    for (method, path) in
        [(Method::GET, "edit"), (Method::POST, "edit"), (Method::GET, "rotate"), (Method::POST, "rotate")]
    {
        let path = format!("{key}/{path}");
        let call =
            if method == Method::GET { browser.get(&world, &path) } else { browser.post(&world, &path, &[]) };
        let answer = call.send().await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text);
        check_headers(&answer, &path);
    }
    for path in ["", "?search=script", "/delete"] {
        let path = if path == "/delete" { format!("{key}/delete") } else { format!("{}{path}", scene.keys) };
        let page = browser.page(&world, &path).await;
        assert!(!page.contains("<script>alert"), "{path}: {page}");
    }
    browser.done(&world, &format!("{key}/delete"), &[]).await;

    // A key of another project doesn't exist here.
    let elsewhere = Place {
        project: world.project(&scene.ada, &scene.place.organization, "Other").await,
        ..scene.place.clone()
    };
    let (other, _) = world.key(&scene.ada, &elsewhere, &json!({"name": "k"})).await;
    for page in ["", "/edit", "/rotate", "/delete"] {
        let path = format!("{}/{other}{page}", scene.keys);
        assert_eq!(scene.browser.get(&world, &path).send().await.status, 404, "{path}");
    }
}
