//! Pages of budgets.

use serde_json::{Value, json};
use tollkeeper::tenants::roles::OrganizationRole;

use support::billed::budgets_path;
use support::console::{Browser, hidden};
use support::on_each_database;
use support::world::{Place, TestUser, World};

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
        format!("/console/organizations/{}/billing/budgets{path}", self.place.organization)
    }

    async fn budgets(&self) -> Vec<Value> {
        let path = budgets_path(&self.place.organization);
        let data = self.world.get(&path).bearer(&self.ada.access_token).data().await;
        data["budgets"].as_array().unwrap().clone()
    }
}

#[on_each_database]
async fn budget_is_made_changed_and_deleted(world: World) {
    let scene = Scene::new(&world).await;
    let browser = &scene.browser;
    let list = browser.page(&world, &scene.at("")).await;
    assert!(list.contains("No budgets yet.") && list.contains("/billing/budgets/new"), "{list}");
    let form = browser.page(&world, &scene.at("/new")).await;
    assert!(form.contains("Acme project") && form.contains("\n50\n80\n100</textarea>"), "{form}");
    let fields = [
        ("name", "Project's"),
        ("scope", "project"),
        ("project_id", scene.place.project.as_str()),
        ("api_key_id", ""),
        ("period", "month"),
        ("limit", "12.50"),
        ("shown", "hard"),
        ("hard", "true"),
        ("thresholds", "50\r\n80"),
    ];
    let done = browser.done(&world, &scene.at("/new"), &fields).await;
    assert_eq!(done, scene.at("?done=budget_created"));
    let made = scene.budgets().await.remove(0);
    assert_eq!((&made["limit"], &made["hard"]), (&json!(12.5), &json!(true)));
    assert_eq!((&made["thresholds"], &made["project_id"]), (&json!([50, 80]), &json!(scene.place.project)));
    let list = browser.page(&world, &scene.at("")).await;
    for part in
        ["Project&#39;s", "Project Acme project", ">Mar 2026</time>", "0%", "in USD", ">12.50<", "Hard"]
    {
        assert!(list.contains(part), "{part}: {list}");
    }
    let page = scene.at(&format!("/{}", made["id"].as_str().unwrap()));
    let version = hidden(&browser.page(&world, &page).await, "version");
    let fields = [
        ("version", version.as_str()),
        ("name", "Other"),
        ("limit", "0.000000001"),
        ("shown", "hard"),
        ("shown", "thresholds"),
        ("thresholds", ""),
    ];
    let done = browser.done(&world, &page, &fields).await;
    assert_eq!(done, scene.at("?done=budget_changed"));
    let changed = scene.budgets().await.remove(0);
    assert_eq!((&changed["name"], &changed["hard"]), (&json!("Other"), &json!(false)));
    assert_eq!((&changed["limit"], &changed["thresholds"]), (&json!(1e-9), &json!([])));
    // Another user has already changed the budget.
    let fields = [("version", version.as_str()), ("name", "Mine"), ("limit", "5")];
    assert_eq!(browser.post(&world, &page, &fields).send().await.status, 409);
    let question = browser.page(&world, &format!("{page}/delete")).await;
    assert!(question.contains("<strong>Other</strong>"), "{question}");
    let done = browser.done(&world, &format!("{page}/delete"), &[]).await;
    assert_eq!(done, scene.at("?done=budget_deleted"));
    assert_eq!(scene.budgets().await, Vec::<Value>::new());
    assert_eq!(browser.get(&world, &page).send().await.status, 404);
}

#[on_each_database]
async fn bars_have_the_true_percentage(world: World) {
    let scene = Scene::new(&world).await;
    let (key, _) = world.old_key(&scene.ada, &scene.place, &json!({"name": "Prod"})).await;
    // 1,000 x 0.000002 = 0.002 is used.
    let event = json!({"id": "e1", "source": "t", "time": world.clock.now().to_string(), "model": "svc-1",
        "api_key_id": key, "kind": "chat", "prompt_tokens": 1_000, "completion_tokens": 0});
    let accepted = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(accepted["results"][0]["status"], "accepted", "{accepted}");
    for (name, limit, kind, words, left) in [
        ("Low", "0.1", "good", "</svg> 2%</td>", "0.098"),
        ("Near", "0.0025", "warn", "</svg> 80% <span class=\"badge warn\">Nearly used up</span>", "0.0005"),
        ("Full", "0.002", "warn", "</svg> 100% <span class=\"badge warn\">Used up</span>", "0.00"),
        // 0.002 of 0.001242 are 161.03 percent.
        ("Over", "0.001242", "bad", "</svg> 162% <span class=\"badge bad\">Over the limit</span>", "-0.0008"),
    ] {
        let fields = [
            ("name", name),
            ("scope", "organization"),
            ("project_id", ""),
            ("api_key_id", ""),
            ("period", "day"),
            ("limit", limit),
            ("thresholds", ""),
        ];
        scene.browser.done(&world, &scene.at("/new"), &fields).await;
        let list = scene.browser.page(&world, &scene.at("")).await;
        let row = list.split("<tr>").find(|row| row.contains(&format!(">{name}<"))).unwrap();
        for part in [&format!("<svg class=\"bar {kind}\""), words, &format!(">{left}<")] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(row.contains(">10 Mar 2026</time>"), "{row}");
    }
    let over = scene.budgets().await.into_iter().find(|budget| budget["name"] == "Over").unwrap();
    let page = scene.browser.page(&world, &scene.at(&format!("/{}", over["id"].as_str().unwrap()))).await;
    // 0.002 - 0.001242 = 0.000758
    let excess = "<dt>Over limit</dt><dd><span title=\"0.000758 USD\">0.0008 USD</span></dd>";
    assert!(page.contains(excess) && page.contains("162%"), "{page}");
}

#[on_each_database]
async fn mistakes_stand_beside_their_fields(world: World) {
    let scene = Scene::new(&world).await;
    let fields = [
        ("name", ""),
        ("scope", "api_key"),
        ("project_id", scene.place.project.as_str()),
        ("api_key_id", ""),
        ("period", "day"),
        ("limit", "a lot"),
        ("thresholds", "80\r\n50"),
    ];
    let answer = scene.browser.post(&world, &scene.at("/new"), &fields).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    for part in [
        "Name can’t be empty.",
        "API key can’t be empty.",
        "has no Project",
        "Limit must be more than 0",
        "Alert at (% of limit) must be at most 10 numbers",
    ] {
        let part = part.replace('’', "&#39;");
        assert!(answer.text.contains(&part), "{part}: {}", answer.text);
    }
    let fields = [
        ("name", "b"),
        ("scope", "api_key"),
        ("api_key_id", "key_01h2xcejqtf2nbrexx3vqjhp41"),
        ("project_id", ""),
        ("period", "day"),
        ("limit", "1"),
    ];
    let answer = scene.browser.post(&world, &scene.at("/new"), &fields).send().await;
    assert_eq!(answer.status, 404);
}

#[on_each_database]
async fn admins_see_budgets_and_members_do_not(world: World) {
    let scene = Scene::new(&world).await;
    let budget = support::billed::budget(&world, &scene.ada, &scene.place).await;
    for (name, role, status) in [("bob", OrganizationRole::Admin, 200), ("cy", OrganizationRole::Member, 403)]
    {
        let user = world.user(name).await;
        world.join_organization(&scene.place, &user, role).await;
        let browser = world.browser(user.id).await;
        let list = browser.get(&world, &scene.at("")).send().await;
        assert_eq!(list.status, status, "{name}");
        assert!(!list.text.contains("/billing/budgets/new") && !list.text.contains(&budget), "{name}");
        for path in ["/new".to_owned(), format!("/{budget}"), format!("/{budget}/delete")] {
            assert_eq!(browser.get(&world, &scene.at(&path)).send().await.status, 403, "{name} {path}");
            assert_eq!(browser.post(&world, &scene.at(&path), &[]).send().await.status, 403, "{name} {path}");
        }
    }
}
