//! Text from users is escaped on every page, regardless of its content.

use http::Method;
use serde_json::json;
use tollkeeper::db::sql;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use super::pages::{check_headers, check_size, page_paths};
use support::billed::{self, Usage, charge};
use support::console::{Browser, assert_escaped};
use support::http::Answer;
use support::on_each_database;
use support::world::{Place, World};

/// A text that could end an attribute or an element, or run as a template of another language.
pub const HOSTILE: &str = "\"><script>alert('1')</script>&amp;{{7*7}}";

/// The same text, encoded for a query.
const HOSTILE_QUERY: &str = "%22%3E%3Cscript%3Ealert(%271%27)%3C%2Fscript%3E%26amp%3B%7B%7B7*7%7D%7D";

fn assert_harmless(answer: &Answer, path: &str) {
    for part in ["<script>alert", "alert('1')"] {
        assert!(!answer.text.contains(part), "{path}: {part}: {}", answer.text);
    }
}

#[on_each_database]
async fn every_field_of_every_page_is_escaped(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    let profile = [("username", "ada"), ("full_name", HOSTILE), ("phone", "")];
    browser.done(&world, "/console/account", &profile).await;
    let fields = [("name", HOSTILE), ("description", HOSTILE)];
    let organization = browser.done(&world, "/console/organizations/new", &fields).await;
    let organization = organization.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    let taken = browser.post(&world, "/console/organizations/new", &fields).send().await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    assert_harmless(&taken, "name taken");

    let body = json!({"name": HOSTILE, "description": HOSTILE, "visibility": "private"});
    let path = format!("/v1/organizations/{organization}/projects");
    let project = world.call(Method::POST, &path).json(&body).bearer(&user.access_token).data().await;
    let project = project["id"].as_str().unwrap().to_owned();
    let place = Place { organization, project };
    let key = json!({"name": HOSTILE, "description": HOSTILE});
    let (key, _) = world.key(&user, &place, &key).await;
    let day = world.clock.now().day();
    charge(&world, Usage { place: &place, key: &key, model: "svc-1", day, prompt: 1_000, completion: 10 })
        .await;
    let bob = world.user("bob").await;
    world.join_organization(&place, &bob, OrganizationRole::Member).await;
    world.join_project(&place, &bob, ProjectRole::Developer).await;
    world
        .browser(bob.id)
        .await
        .done(&world, "/console/account", &[("username", "bob"), profile[1], profile[2]])
        .await;
    let invitation =
        [("email", "cy@example.com"), ("role", "member"), ("message", HOSTILE), ("invitation_id", "")];
    let invite = format!("/console/organizations/{}/members/invite", place.organization);
    assert_harmless(&browser.post(&world, &invite, &invitation).send().await, &invite);

    let budget = json!({"name": HOSTILE, "scope": "api_key", "api_key_id": key, "period": "day", "limit": 1});
    let path = billed::budgets_path(&place.organization);
    let budget = world.call(Method::POST, &path).json(&budget).bearer(&user.access_token).data().await;
    let webhook =
        json!({"url": "https://example.com/?a='1'&b=2", "description": HOSTILE, "events": ["invoice.paid"]});
    let path = format!("/v1/organizations/{}/webhooks", place.organization);
    let webhook = world.call(Method::POST, &path).json(&webhook).bearer(&user.access_token).data().await;
    let payment = billed::payment(&world, &place).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE payments SET failure_code = $1").bind(HOSTILE).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let ids = [
        ("organization_id", place.organization.as_str()),
        ("project_id", &place.project),
        ("budget_id", budget["id"].as_str().unwrap()),
        ("webhook_id", webhook["id"].as_str().unwrap()),
        ("payment_id", &payment),
        ("key_id", &key),
        ("member_id", &bob.id.to_string()),
    ];
    let mut shown = 0;
    let paths = page_paths(&ids);
    for path in &paths {
        let query = format!("{path}?search={HOSTILE_QUERY}&done={HOSTILE_QUERY}&next={HOSTILE_QUERY}&page=1");
        for path in [path, &query] {
            let call = browser.get(&world, path).header("user-agent", HOSTILE);
            let answer = call.send().await;
            check_headers(&answer, path);
            check_size(&answer, path);
            assert_harmless(&answer, path);
            shown += u32::from(answer.status == 200 && answer.text.contains("&#60;script&#62;alert("));
        }
    }
    // Every page of the organization shows the names in its header.
    assert!(shown > 40, "{shown} of {} pages show them", paths.len());
    let sessions = browser.page(&world, "/console/account/sessions").await;
    assert!(!sessions.contains("<script>alert"), "{sessions}");

    let signed_out = Browser::signed_out();
    let answer = signed_out.post(&world, "/console/organizations/new", &fields).send().await;
    assert_eq!(answer.status, 401);
    assert_harmless(&answer, "signed out");
    assert_escaped(&answer.text, HOSTILE);
}

#[on_each_database]
async fn mistakes_show_what_was_typed_as_text(world: World) {
    let user = world.user("ada").await;
    let place = world.place(&user, "Acme").await;
    let (key, _) = world.key(&user, &place, &json!({"name": "k"})).await;
    let browser = world.browser(user.id).await;
    let project = format!("/console/organizations/{}/projects/{}", place.organization, place.project);
    let organization = format!("/console/organizations/{}", place.organization);
    let forms: [(String, &[&str]); 11] = [
        ("/console/account".into(), &["username", "phone"]),
        ("/console/account/email".into(), &["new_email"]),
        ("/console/organizations/new".into(), &["settings.default_member_role"]),
        (format!("{organization}/projects/new"), &["settings.max_tokens", "settings.temperature"]),
        (format!("{organization}/members/invite"), &["email", "role"]),
        (format!("{organization}/webhooks/new"), &["url", "description", "events"]),
        (format!("{organization}/billing/balance-alert"), &["below"]),
        (format!("{organization}/billing/payments/new"), &["new_id", "amount", "save_card"]),
        (format!("{project}/settings"), &["settings.max_tokens", "visibility"]),
        (format!("{project}/api-keys/new"), &["restrictions.allowed_ips", "restrictions.rate_limit"]),
        (format!("{project}/api-keys/{key}/edit"), &["restrictions.allowed_ips", "restrictions.max_tokens"]),
    ];
    for (path, names) in forms {
        let fields: Vec<_> = names.iter().map(|name| (*name, HOSTILE)).collect();
        let answer = browser.post(&world, &path, &fields).send().await;
        assert!((400..=409).contains(&answer.status), "{path}: {} {}", answer.status, answer.text);
        check_headers(&answer, &path);
        assert_harmless(&answer, &path);
    }
    assert_filters(&world, &browser, &organization).await;
}

/// Asserts that invalid filters are shown as text.
async fn assert_filters(world: &World, browser: &Browser, organization: &str) {
    for path in ["usage?range=custom&start_date=", "billing/movements?start_date=", "audit-log?action="] {
        let path = format!("{organization}/{path}{HOSTILE_QUERY}");
        let answer = browser.get(world, &path).send().await;
        assert!([200, 400].contains(&answer.status), "{path}: {}", answer.text);
        check_headers(&answer, &path);
        assert_harmless(&answer, &path);
    }
}
