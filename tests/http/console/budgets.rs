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
    for part in ["Project&#39;s", "Project Acme project", "2026-03", "<meter", "0%", "12.50 USD", "Hard"] {
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
