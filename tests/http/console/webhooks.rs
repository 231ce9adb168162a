//! Pages of webhooks.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::tenants::roles::OrganizationRole;
use tollkeeper::webhooks::sending::send_due;

use support::console::{Browser, hidden};
use support::receiver::Receiver;
use support::webhooks::webhook;
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

/// The response of a receiver that fails.
const FAILS: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

struct Scene<'a> {
    world: &'a World,
    ada: TestUser,
    place: Place,
    browser: Browser,
}

impl<'a> Scene<'a> {
    async fn new(world: &'a World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let browser = world.browser(ada.id).await;
        Self { world, ada, place, browser }
    }

    fn at(&self, path: &str) -> String {
        format!("/console/organizations/{}/webhooks{path}", self.place.organization)
    }

    async fn webhooks(&self) -> Vec<Value> {
        let path = format!("{}/webhooks", self.place.organization_path());
        let data = self.world.get(&path).bearer(&self.ada.access_token).data().await;
        data["webhooks"].as_array().unwrap().clone()
    }

    /// Creates a webhook with the form; returns its id and the page with its secret.
    async fn create(&self, url: &str, events: &[&str]) -> (String, String) {
        let new_id = hidden(&self.browser.page(self.world, &self.at("/new")).await, "new_id");
        let mut fields =
            vec![("new_id", new_id.as_str()), ("url", url), ("description", ""), ("shown", "events")];
        fields.extend(events.iter().map(|of| ("events", *of)));
        let made = self.browser.post(self.world, &self.at("/new"), &fields).send().await;
        assert_eq!(made.status, 200, "{}", made.text);
        // Sent again, the form shows no secret and creates no second webhook.
        let again = self.browser.post(self.world, &self.at("/new"), &fields).send().await;
        assert_eq!(again.status, 409, "{}", again.text);
        assert!(again.text.contains("already exists") && !again.text.contains("whsec_"), "{}", again.text);
        let id = made.text.split("/webhooks/webhook_").nth(1).unwrap().split('"').next().unwrap();
        (format!("webhook_{id}"), made.text)
    }
}

/// Runs a test on a database, with receivers on this machine allowed.
fn run_on(database: Database, test: impl AsyncFn(World)) {
    database.run(&[("TOLLKEEPER_WEBHOOKS__ALLOW_PRIVATE", "true")], test);
}

/// Returns the secret that a page shows.
fn secret(page: &str) -> String {
    let (_, rest) = page.split_once("whsec_").unwrap_or_else(|| panic!("no secret: {page}"));
    format!("whsec_{}", rest.split('<').next().unwrap())
}

#[on_each_database]
fn webhook_is_made_changed_rotated_and_deleted(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let browser = &scene.browser;
        let list = browser.page(&world, &scene.at("")).await;
        assert!(list.contains("No webhooks yet.") && list.contains("/webhooks/new"), "{list}");
        let form = browser.page(&world, &scene.at("/new")).await;
        assert!(form.contains("> invoice.paid: an invoice was paid in full</label>"), "{form}");
        let (id, made) = scene.create("https://example.com/one", &["member.added", "invoice.paid"]).await;
        let first = secret(&made);
        let [row] = scene.webhooks().await.try_into().unwrap();
        assert_eq!((&row["id"], &row["events"]), (&json!(id), &json!(["invoice.paid", "member.added"])));
        assert_eq!((&row["description"], &row["enabled"]), (&Value::Null, &json!(true)));
        let list = browser.page(&world, &scene.at("")).await;
        for part in ["https://example.com/one", "2 types", ">on<"] {
            assert!(list.contains(part), "{part}: {list}");
        }

        let page = scene.at(&format!("/{id}"));
        let shown = browser.page(&world, &page).await;
        assert!(!shown.contains("whsec_") && !list.contains("whsec_"), "a secret is shown once");
        let version = hidden(&shown, "version");
        let fields = [
            ("version", version.as_str()),
            ("url", "https://example.com/two"),
            ("description", "Ours"),
            ("shown", "events"),
            ("events", "balance.low"),
            ("shown", "enabled"),
        ];
        let done = browser.done(&world, &page, &fields).await;
        assert_eq!(done, format!("{page}?done=webhook_changed"));
        let [row] = scene.webhooks().await.try_into().unwrap();
        assert_eq!((&row["url"], &row["description"]), (&json!("https://example.com/two"), &json!("Ours")));
        assert_eq!((&row["events"], &row["disabled_reason"]), (&json!(["balance.low"]), &json!("owner")));
        let off = browser.page(&world, &page).await;
        assert!(off.contains(">off<") && !off.contains("Send a test"), "{off}");

        let rotate = format!("{page}/rotate");
        let version = hidden(&browser.page(&world, &rotate).await, "version");
        let rotated = browser.post(&world, &rotate, &[("version", &version)]).send().await;
        assert_eq!(rotated.status, 200, "{}", rotated.text);
        assert_ne!(secret(&rotated.text), first);
        let again = browser.post(&world, &rotate, &[("version", &version)]).send().await;
        assert_eq!(again.status, 409, "{}", again.text);
        assert!(again.text.contains("already rotated") && !again.text.contains("whsec_"), "{}", again.text);
        let both = browser.page(&world, &page).await;
        assert!(both.contains("Events are also signed with the previous secret"), "{both}");

        let question = browser.page(&world, &format!("{page}/delete")).await;
        assert!(question.contains("https://example.com/two"), "{question}");
        let done = browser.done(&world, &format!("{page}/delete"), &[]).await;
        assert_eq!(done, scene.at("?done=webhook_deleted"));
        assert_eq!(scene.webhooks().await, Vec::<Value>::new());
        assert_eq!(browser.get(&world, &page).send().await.status, 404);
    });
}

#[on_each_database]
fn change_that_was_overtaken_shows_both_versions(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let (id, _) = webhook(&world, &scene.ada, &scene.place).await;
        let page = scene.at(&format!("/{id}"));
        let version = hidden(&scene.browser.page(&world, &page).await, "version");
        let api = format!("{}/webhooks/{id}", scene.place.organization_path());
        let theirs = json!({"description": "<b>theirs</b>", "events": ["credit.added"]});
        world.call(Method::PUT, &api).json(&theirs).bearer(&scene.ada.access_token).data().await;
        let mine = |version: &str| {
            let fields = [
                ("version", version),
                ("url", "https://example.com/events"),
                ("description", "mine"),
                ("shown", "events"),
                ("events", "invoice.paid"),
                ("events", "invoice.voided"),
                ("shown", "enabled"),
                ("enabled", "true"),
            ];
            fields.map(|(name, value)| (name, value.to_owned()))
        };
        let fields = mine(&version);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = scene.browser.post(&world, &page, &fields).send().await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        for text in [
            "<td class=\"lines\">mine</td><td class=\"lines\">&#60;b&#62;theirs&#60;/b&#62;</td>",
            "<td class=\"lines\">invoice.paid\ninvoice.voided</td><td class=\"lines\">credit.added</td>",
        ] {
            assert!(answer.text.contains(text), "{text}: {}", answer.text);
        }
        let [row] = scene.webhooks().await.try_into().unwrap();
        assert_eq!(row["description"], "<b>theirs</b>");
        let fields = mine(&hidden(&answer.text, "version"));
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        scene.browser.done(&world, &page, &fields).await;
        let [row] = scene.webhooks().await.try_into().unwrap();
        assert_eq!((&row["description"], row["events"].as_array().unwrap().len()), (&json!("mine"), 2));
    });
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__WEBHOOKS_PER_ORGANIZATION", "1")])]
async fn mistakes_stand_beside_their_fields_and_what_was_typed_stays(world: World) {
    let scene = Scene::new(&world).await;
    let new_id = hidden(&scene.browser.page(&world, &scene.at("/new")).await, "new_id");
    let cases = [
        (("url", ""), "URL can’t be empty."),
        (("url", "example.com"), "URL must be a URL such as"),
        (("url", "http://example.com"), "URL must begin with “https://”"),
        (("url", "https://10.0.0.1/x"), "URL"),
        (("events", ""), "Events can’t be empty."),
        (("description", &"x".repeat(1_001)), "Description"),
    ];
    for ((name, value), words) in cases {
        let typed =
            [("url", "https://example.com/typed"), ("description", "typed"), ("events", "invoice.paid")];
        let mut fields = vec![("new_id", new_id.as_str()), ("shown", "events")];
        fields.extend(typed.map(|(of, right)| (of, if of == name { value } else { right })));
        fields.retain(|(of, value)| *of != "events" || !value.is_empty());
        let answer = scene.browser.post(&world, &scene.at("/new"), &fields).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        let words = words.replace('’', "&#39;");
        assert!(
            answer.text.contains(&words) && answer.text.contains("aria-invalid"),
            "{words}: {}",
            answer.text
        );
        assert!(answer.text.contains("typed") && hidden(&answer.text, "new_id") == new_id, "{}", answer.text);
    }
    // Another user's form creates nothing; its fields are kept.
    let fields = [("new_id", "x"), ("url", "https://example.com/typed"), ("events", "invoice.paid")];
    let answer = scene.browser.post(&world, &scene.at("/new"), &fields).send().await;
    assert_eq!(
        (answer.status, answer.text.contains("https://example.com/typed")),
        (400, true),
        "{}",
        answer.text
    );
    assert_eq!(scene.webhooks().await.len(), 0);
    scene.create("https://example.com", &["invoice.paid"]).await;
    let new_id = hidden(&scene.browser.page(&world, &scene.at("/new")).await, "new_id");
    let fields = [("new_id", new_id.as_str()), fields[1], fields[2]];
    let answer = scene.browser.post(&world, &scene.at("/new"), &fields).send().await;
    assert_eq!(
        (answer.status, answer.text.contains("https://example.com/typed")),
        (409, true),
        "{}",
        answer.text
    );
}

#[on_each_database]
fn deliveries_are_listed_tested_and_made_again(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let (browser, receiver) = (&scene.browser, Receiver::start(FAILS).await);
        let (id, _) = scene.create(&receiver.url(), &["api_key.created"]).await;
        let page = scene.at(&format!("/{id}"));
        let list = format!("{page}/deliveries");
        assert!(browser.page(&world, &list).await.contains("Nothing sent yet."));

        let new_id = hidden(&browser.page(&world, &page).await, "new_id");
        let done = browser.done(&world, &format!("{page}/test"), &[("new_id", &new_id)]).await;
        assert_eq!(done, format!("{list}?done=webhook_tested"));
        let done = browser.done(&world, &format!("{page}/test"), &[("new_id", &new_id)]).await;
        assert_eq!(done, format!("{list}?done=webhook_tested_before"));
        let done = browser.done(&world, &format!("{page}/test"), &[("new_id", "x")]).await;
        assert_eq!(done, format!("{page}?done=form_too_old"));
        send_due(&world.app.webhooks).await.unwrap();
        assert_eq!(receiver.take().len(), 1);
        let shown = browser.page(&world, &list).await;
        for part in
            ["webhook.test", ">pending<", "rejected, status 500, ", "<td class=\"number\">1</td>", "1 event<"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(browser.page(&world, &page).await.contains(">failing<"));
        assert!(browser.page(&world, &format!("{list}?state=failed")).await.contains("Nothing matches."));

        // A delivery that was given up is sent again: first a single delivery, then all deliveries since a
        // date.
        let api = format!("{}/webhooks/{id}", scene.place.organization_path());
        let delivery = shown.split("/deliveries/delivery_").nth(1).unwrap().split('/').next().unwrap();
        let again = format!("{list}/delivery_{delivery}/redeliver");
        for enabled in [false, true] {
            let body = json!({ "enabled": enabled });
            world.call(Method::PUT, &api).json(&body).bearer(&scene.ada.access_token).data().await;
            let shown = browser.page(&world, &list).await;
            assert!(shown.contains(">failed<"), "{shown}");
            assert_eq!(shown.contains("Redeliver"), enabled, "{shown}");
            let refused = browser.post(&world, &again, &[]).send().await;
            assert_eq!(refused.status, if enabled { 303 } else { 409 }, "{}", refused.text);
            let since = browser.page(&world, &format!("{page}/redeliver")).await;
            assert!(since.contains("value=\"2026-03-03\""), "{since}");
            assert_eq!(since.contains("This webhook is off"), !enabled, "{since}");
        }
        send_due(&world.app.webhooks).await.unwrap();
        assert_eq!(receiver.take().len(), 1);
        world
            .call(Method::PUT, &api)
            .json(&json!({"enabled": false}))
            .bearer(&scene.ada.access_token)
            .data()
            .await;
        world
            .call(Method::PUT, &api)
            .json(&json!({"enabled": true}))
            .bearer(&scene.ada.access_token)
            .data()
            .await;
        let redeliver = format!("{page}/redeliver");
        let wrong = browser.post(&world, &redeliver, &[("since", "yesterday")]).send().await;
        assert_eq!(wrong.status, 400, "{}", wrong.text);
        assert!(wrong.text.contains("Since must be a date") && wrong.text.contains("value=\"yesterday\""));
        let done = browser.done(&world, &redeliver, &[("since", "2026-03-11")]).await;
        assert_eq!(done, format!("{list}?done=nothing_to_deliver"));
        let done = browser.done(&world, &redeliver, &[("since", "2026-03-10")]).await;
        assert_eq!(done, format!("{list}?done=deliveries_begun"));
        send_due(&world.app.webhooks).await.unwrap();
        assert_eq!(receiver.take().len(), 1);
        let shown = browser.page(&world, &format!("{list}?state=pending")).await;
        assert!(shown.contains("<td class=\"number\">3</td>"), "{shown}");
    });
}

#[on_each_database]
fn admins_see_webhooks_and_members_do_not(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let (id, delivery) = webhook(&world, &scene.ada, &scene.place).await;
        for (name, role, status) in
            [("bob", OrganizationRole::Admin, 200), ("cy", OrganizationRole::Member, 403)]
        {
            let user = world.user(name).await;
            world.join_organization(&scene.place, &user, role).await;
            let browser = world.browser(user.id).await;
            for path in ["".to_owned(), format!("/{id}"), format!("/{id}/deliveries")] {
                let page = browser.get(&world, &scene.at(&path)).send().await;
                assert_eq!(page.status, status, "{name} {path}");
                let main = page.text.split("<main ").nth(1).unwrap();
                for offered in
                    ["<form method=\"post\"", "<form class=\"form\"", "/new\"", "/delete\"", "/rotate\""]
                {
                    assert!(!main.contains(offered), "{name} {path} {offered}: {main}");
                }
            }
            for path in [
                "/new".to_owned(),
                format!("/{id}/rotate"),
                format!("/{id}/redeliver"),
                format!("/{id}/delete"),
            ] {
                assert_eq!(browser.get(&world, &scene.at(&path)).send().await.status, 403, "{name} {path}");
                assert_eq!(
                    browser.post(&world, &scene.at(&path), &[]).send().await.status,
                    403,
                    "{name} {path}"
                );
            }
            let posts =
                [format!("/{id}"), format!("/{id}/test"), format!("/{id}/deliveries/{delivery}/redeliver")];
            for path in posts {
                assert_eq!(
                    browser.post(&world, &scene.at(&path), &[]).send().await.status,
                    403,
                    "{name} {path}"
                );
            }
        }
    });
}
