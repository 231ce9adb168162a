//! Settings, deletion and audit log of an organization.

use serde_json::json;
use tollkeeper::tenants::roles::OrganizationRole::{Admin, Member};

use support::console::{assert_escaped, hidden};
use support::on_each_database;
use support::world::World;

const HOSTILE: &str = "<script>alert(1)</script> \"'& مرحبا";

#[on_each_database]
async fn settings_are_changed_and_conflicts_are_shown(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    world.place(&ada, "Taken").await;
    world.join_organization(&place, &bob, Admin).await;
    let (browser, admin) = (world.browser(ada.id).await, world.browser(bob.id).await);
    let path = format!("/console/organizations/{}/settings", place.organization);
    let page = browser.page(&world, &path).await;
    assert!(
        page.contains("value=\"Acme\"") && page.contains("checked") && page.contains("/delete\""),
        "{page}"
    );
    assert!(!admin.page(&world, &path).await.contains("/delete\""), "only owners delete");
    let version = hidden(&page, "version");
    let form = |name, description| {
        [
            ("version", version.as_str()),
            ("name", name),
            ("description", description),
            ("settings.default_role", "admin"),
            ("shown", "settings.allow_public_projects"),
        ]
    };
    let taken = browser.post(&world, &path, &form("Taken", "kept")).send().await;
    assert_eq!(taken.status, 409);
    assert!(
        taken.text.contains("id=\"name-mistake\"") && taken.text.contains(">\nkept</textarea>"),
        "{}",
        taken.text
    );
    assert_eq!(hidden(&taken.text, "version"), version);
    let empty = browser.post(&world, &path, &form("", "kept")).send().await;
    assert_eq!(
        (empty.status, empty.text.contains("Name can&#39;t be empty.")),
        (400, true),
        "{}",
        empty.text
    );
    // A new member causes no conflict, because the form doesn't show members.
    let cy = world.user("cy").await;
    world.join_organization(&place, &cy, Member).await;
    let done = browser.done(&world, &path, &form(HOSTILE, HOSTILE)).await;
    assert_eq!(done, format!("{path}?done=organization_changed"));
    let page = browser.page(&world, &done).await;
    assert!(page.contains("The settings are saved.") && !page.contains("checked"), "{page}");
    assert_escaped(&page, HOSTILE);

    // Bob's form is from before the change.
    let conflict = admin.post(&world, &path, &form("Bob's", "")).send().await;
    assert_eq!(conflict.status, 409, "{}", conflict.text);
    assert_escaped(&conflict.text, HOSTILE);
    assert!(conflict.text.contains("Use mine") && conflict.text.contains("Keep theirs"), "{}", conflict.text);
    let version = hidden(&conflict.text, "version");
    let mine = [("version", version.as_str()), ("name", "Bob's"), ("description", "")];
    admin.done(&world, &path, &mine).await;
    let data = world.get(&place.organization_path()).bearer(&ada.access_token).data().await;
    assert_eq!((&data["name"], &data["description"]), (&json!("Bob's"), &json!(null)));
    assert_eq!(
        data["settings"],
        json!({"default_role": "admin", "allow_public_projects": false, "require_second_factor": false, "require_sign_on": false})
    );

    let member = world.browser(cy.id).await;
    assert_eq!(member.get(&world, &path).send().await.status, 403);
    assert_eq!(member.post(&world, &path, &mine).send().await.status, 403);
}

#[on_each_database]
async fn deletion_takes_the_name_and_a_settled_balance(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, Admin).await;
    let browser = world.browser(ada.id).await;
    let path = format!("/console/organizations/{}/delete", place.organization);
    let page = browser.page(&world, &path).await;
    for part in ["Delete Acme?", "1 project will be deleted with all API keys", "2 members will lose access"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("can't be deleted yet") && !page.contains("class=\"notice"), "{page}");
    for name in ["", "acme", "Other"] {
        let wrong = browser.post(&world, &path, &[("name", name)]).send().await;
        assert_eq!((wrong.status, wrong.text.contains("id=\"name-mistake\"")), (400, true), "{}", wrong.text);
    }
    assert_eq!(world.browser(bob.id).await.get(&world, &path).send().await.status, 403);

    let set_posted = async |nano: i64| {
        let mut tx = world.app.db.write().await.unwrap();
        let text = "UPDATE wallets SET posted_nano = $2 WHERE organization_id = $1";
        tollkeeper::db::sql(text)
            .bind(place.organization.as_str())
            .bind(nano)
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    for (nano, words) in [(12_340_000_000, "still has 12.34"), (-5_000_000_000, "owes money (5.00")] {
        set_posted(nano).await;
        let page = browser.page(&world, &path).await;
        assert!(page.contains(words), "{words}: {page}");
        let refused = browser.post(&world, &path, &[("name", "Acme")]).send().await;
        assert_eq!(refused.status, 409);
        assert!(
            refused.text.contains("Settle its balance first") && refused.text.contains(words),
            "{}",
            refused.text
        );
    }
    set_posted(0).await;
    let done = browser.done(&world, &path, &[("name", " Acme ")]).await;
    assert_eq!(done, "/console/organizations?done=organization_deleted");
    assert!(browser.page(&world, &done).await.contains("The organization is deleted."));
    assert_eq!(browser.post(&world, &path, &[("name", "Acme")]).send().await.status, 404, "sent twice");
}

#[on_each_database]
async fn audit_log_is_filtered_and_comes_as_a_file(world: World) {
    let (ada, bob, cy) = (world.user("ada").await, world.user("bob").await, world.user("cy").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, Admin).await;
    world.join_organization(&place, &cy, Member).await;
    let project = format!("/v1/organizations/{}/projects", place.organization);
    world.post(&project, &json!({"name": "Second"})).bearer(&bob.access_token).data().await;
    let browser = world.browser(bob.id).await;
    let path = format!("/console/organizations/{}/audit-log", place.organization);
    let page = browser.page(&world, &path).await;
    for part in [
        "3 changes",
        "Organization created",
        "Project created",
        "<option value=\"api_key.created\">API key created",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("session.started") && page.len() < 50_000);
    let of_ada = format!("actor={}", ada.id);
    let cases = [
        (of_ada.clone(), "2 changes"),
        (format!("{of_ada}&action=project.created"), "1 change"),
        (format!("target={}", place.project), "1 change"),
        ("start_date=2026-03-10&end_date=2026-03-10".to_owned(), "3 changes"),
        ("end_date=2026-03-09".to_owned(), "Nothing matches."),
    ];
    for (query, words) in &cases {
        let page = browser.page(&world, &format!("{path}?{query}")).await;
        assert!(page.contains(words), "{query}: {words}: {page}");
        let file = browser.get(&world, &format!("{path}/csv?{query}")).send().await;
        assert_eq!((file.status, file.header("content-type")), (200, "text/csv; charset=utf-8"));
        let lines = file.text.lines().count() - 1;
        let expected = words.split(' ').next().unwrap().parse().unwrap_or(0);
        assert_eq!(lines, expected, "{query}: {}", file.text);
    }
    // The link to the file keeps the filters, and so do the links that add a filter.
    let page = browser.page(&world, &format!("{path}?{of_ada}&action=&page=1")).await;
    assert!(page.contains(&format!("{path}/csv?{of_ada}\"")), "{page}");
    assert!(page.contains(&format!("?{of_ada}&#38;target={}", place.project)), "{page}");
    for (query, words) in [
        ("action=nothing", "id=\"action-mistake\""),
        ("start_date=2026-03-11&end_date=2026-03-10", "id=\"end_date-mistake\""),
    ] {
        let wrong = browser.get(&world, &format!("{path}?{query}")).send().await;
        assert_eq!((wrong.status, wrong.text.contains(words)), (400, true), "{}", wrong.text);
    }
    let member = world.browser(cy.id).await;
    for path in [path.clone(), format!("{path}/csv")] {
        assert_eq!(member.get(&world, &path).send().await.status, 403);
    }
}

#[on_each_database]
async fn deletion_asks_for_a_proof_and_leads_back(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let browser = world.browser(ada.id).await;
    let path = format!("/console/organizations/{}/delete", place.organization);
    world.clock.advance_ms(15 * tollkeeper::clock::MINUTE_MS);
    let next = format!("/console/reauthenticate?next={path}");
    assert_eq!(browser.get(&world, &path).send().await.header("location"), next);
    // A form that was already open is redirected too.
    let refused = browser.post(&world, &path, &[("name", "Acme")]).send().await;
    assert_eq!(refused.header("location"), next, "{}", refused.text);
    let proof = [("password", support::world::PASSWORD), ("next", &path)];
    let answer = browser.post(&world, "/console/reauthenticate", &proof).send().await;
    assert_eq!((answer.status, answer.header("location")), (303, path.as_str()), "{}", answer.text);
    let mut browser = browser;
    browser.take(&answer);
    let done = browser.done(&world, &path, &[("name", "Acme")]).await;
    assert_eq!(done, "/console/organizations?done=organization_deleted");
}
