//! Sections 4.2 and 4.3 through HTTP: organizations and their projects.

use serde_json::json;
use tollkeeper::roles::{OrganizationRole, ProjectRole};

use crate::support::world::{START, id, on_each_database, on_each_database_with};

#[test]
fn an_organization_is_made_listed_and_read() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let body =
            json!({"name": "  Acme  ", "description": "Anvils", "settings": {"default_role": "admin"}});
        let made = world.post("/v1/organizations", &body).bearer(&ada.access_token).data().await;
        let expected = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
            "settings": {"default_role": "admin", "allow_public_projects": false},
            "owner": {"id": ada.id.to_string(), "email": "ada@example.com", "username": "ada"}});
        assert_eq!(made, expected);

        let listed = world.get("/v1/organizations").bearer(&ada.access_token).data().await;
        let item = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
            "role": "owner"});
        assert_eq!(listed, json!({"organizations": [item], "total": 1, "page": 1, "page_size": 20}));

        let path = format!("/v1/organizations/{}", id(&made));
        let read = world.get(&path).bearer(&ada.access_token).data().await;
        let expected = json!({"id": made["id"], "name": "Acme", "description": "Anvils", "created_at": START, "updated_at": START,
            "settings": {"default_role": "admin", "allow_public_projects": false}, "members_count": 1, "projects_count": 0});
        assert_eq!(read, expected);
    });
}

#[test]
fn a_name_is_unique_among_those_with_the_same_creator() {
    on_each_database(async |world| {
        let (ada, bob) = (world.somebody("ada").await, world.somebody("bob").await);
        world.organization(&ada, "Acme").await;
        let again =
            world.post("/v1/organizations", &json!({"name": "ACME"})).bearer(&ada.access_token).send().await;
        assert_eq!((again.status, again.code().as_str()), (409, "name_taken"));
        assert_eq!(again.json()["error"]["param"], "name");
        assert_eq!(again.details(), ["name name_taken"]);
        world.organization(&bob, "Acme").await;
    });
}

#[test]
fn racing_creations_have_one_winner() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let body = json!({"name": "Acme"});
        let calls = (0..32).map(|_| world.post("/v1/organizations", &body).bearer(&ada.access_token).send());
        let answers = futures_util::future::join_all(calls).await;
        let count = |status| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((count(200), count(409)), (1, 31));
    });
}

#[test]
fn lists_page_search_and_filter() {
    on_each_database(async |world| {
        let (ada, bob) = (world.somebody("ada").await, world.somebody("bob").await);
        for n in 0..5 {
            world.organization(&ada, &format!("Org {n}")).await;
            world.clock.advance_ms(1);
        }
        let other = world.place(&bob, "100%_sure").await;
        world.join_organization(&other, &ada, OrganizationRole::Member).await;
        let names = async |query: &str| {
            let path = format!("/v1/organizations{query}");
            let data = world.get(&path).bearer(&ada.access_token).data().await;
            let rows = data["organizations"].as_array().unwrap().clone();
            let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
            (names.join(","), data["total"].as_i64().unwrap())
        };
        assert_eq!(names("").await, ("100%_sure,Org 4,Org 3,Org 2,Org 1,Org 0".into(), 6));
        assert_eq!(names("?page=2&page_size=2").await, ("Org 3,Org 2".into(), 6));
        assert_eq!(names("?page=9").await, (String::new(), 6));
        assert_eq!(names("?search=ORG+3").await, ("Org 3".into(), 1));
        assert_eq!(names("?search=%25_").await, ("100%_sure".into(), 1));
        assert_eq!(names("?role=member").await, ("100%_sure".into(), 1));
        assert_eq!(names("?unknown=1").await.1, 6);
        for bad in [
            "?page=0",
            "?page=x",
            "?page_size=101",
            "?page_size=0",
            "?role=king",
            "?page=1&page=2",
            "?search=%ff",
        ] {
            let answer = world.get(&format!("/v1/organizations{bad}")).bearer(&ada.access_token).send().await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{bad}");
        }
    });
}

#[test]
fn a_project_is_made_listed_and_read() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let organization = world.organization(&ada, "Acme").await;
        let path = format!("/v1/organizations/{organization}/projects");
        let body = json!({"name": "Chat", "description": "Talks", "visibility": "public",
                          "settings": {"model": "svc-1", "max_tokens": 2048, "temperature": 0.7}});
        let made = world.post(&path, &body).bearer(&ada.access_token).data().await;
        let expected = json!({"id": made["id"], "name": "Chat", "description": "Talks", "created_at": START, "updated_at": START,
            "settings": {"model": "svc-1", "max_tokens": 2048, "temperature": 0.7}, "visibility": "public",
            "organization_id": organization});
        assert_eq!(made, expected);

        let listed = world.get(&path).bearer(&ada.access_token).data().await;
        let item = json!({"id": made["id"], "name": "Chat", "description": "Talks", "created_at": START, "updated_at": START,
            "visibility": "public", "role": "owner"});
        assert_eq!(listed, json!({"projects": [item], "total": 1, "page": 1, "page_size": 20}));

        let read = world.get(&format!("{path}/{}", id(&made))).bearer(&ada.access_token).data().await;
        let mut expected = expected;
        expected["members_count"] = json!(1);
        expected["api_keys_count"] = json!(0);
        expected["usage"] = json!({"tokens": 0, "requests": 0});
        assert_eq!(read, expected);
        let organization =
            world.get(&format!("/v1/organizations/{organization}")).bearer(&ada.access_token).data().await;
        assert_eq!(organization["projects_count"], 1);
    });
}

#[test]
fn what_a_project_can_not_be() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let organization = world.organization(&ada, "Acme").await;
        let path = format!("/v1/organizations/{organization}/projects");
        world.project(&ada, &organization, "Taken").await;
        let cases = [
            (json!({}), 400, "name required"),
            (json!({"name": null}), 400, "name required"),
            (json!({"name": " "}), 400, "name"),
            (json!({"name": "a\u{0}b"}), 400, "name"),
            (json!({"name": "x", "visibility": "secret"}), 400, "visibility unknown_value"),
            (json!({"name": "x", "settings": {"model": "gpt-9"}}), 400, "settings.model unknown_model"),
            (
                json!({"name": "x", "settings": {"model": "svc-1", "max_tokens": 4097}}),
                400,
                "settings.max_tokens out_of_range",
            ),
            (json!({"name": "x", "settings": {"max_tokens": 0}}), 400, "settings.max_tokens out_of_range"),
            (
                json!({"name": "x", "settings": {"temperature": 2.1}}),
                400,
                "settings.temperature out_of_range",
            ),
            (
                json!({"name": "x", "settings": {"temperature": 0.12345678}}),
                400,
                "settings.temperature out_of_range",
            ),
            (json!({"name": "x", "settings": []}), 400, "settings wrong_type"),
            (json!({"name": "x", "setings": {}}), 400, "setings unknown_field"),
            (json!({"name": "tAKEN"}), 409, ""),
        ];
        for (body, status, detail) in cases {
            let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
            assert_eq!(answer.status, status, "{body}: {}", answer.text);
            let details = answer.details();
            assert!(
                detail.is_empty() || details.iter().any(|d| d.starts_with(detail)),
                "{body}: {details:?}"
            );
        }
        let closed = json!({"name": "Closed"});
        let closed = id(&world.post("/v1/organizations", &closed).bearer(&ada.access_token).data().await);
        let body = json!({"name": "x", "visibility": "public"});
        let path = format!("/v1/organizations/{closed}/projects");
        let refused = world.post(&path, &body).bearer(&ada.access_token).refused().await;
        assert_eq!(refused, (400, "public_projects_not_allowed".into()));
    });
}

#[test]
fn a_list_shows_what_the_caller_can_view_with_the_effective_role() {
    on_each_database(async |world| {
        let (ada, admin, member) =
            (world.somebody("ada").await, world.somebody("admin").await, world.somebody("member").await);
        let place = world.place(&ada, "Acme").await;
        let path = format!("/v1/organizations/{}/projects", place.organization);
        let public = json!({"name": "Open", "visibility": "public"});
        world.post(&path, &public).bearer(&ada.access_token).data().await;
        world.join_organization(&place, &admin, OrganizationRole::Admin).await;
        world.join_organization(&place, &member, OrganizationRole::Member).await;
        let roles = async |token: &str, query: &str| {
            let data = world.get(&format!("{path}{query}")).bearer(token).data().await;
            let rows = data["projects"].as_array().unwrap().clone();
            assert_eq!(data["total"], rows.len());
            let mut roles: Vec<_> = rows
                .iter()
                .map(|row| format!("{}={}", row["name"].as_str().unwrap(), row["role"].as_str().unwrap()))
                .collect();
            roles.sort();
            roles.join(" ")
        };
        assert_eq!(roles(&admin.access_token, "").await, "Acme project=owner Open=owner");
        assert_eq!(roles(&member.access_token, "").await, "Open=viewer");
        world.join_project(&place, &member, ProjectRole::Developer).await;
        assert_eq!(roles(&member.access_token, "").await, "Acme project=developer Open=viewer");
        assert_eq!(roles(&member.access_token, "?role=viewer").await, "Open=viewer");
        assert_eq!(roles(&admin.access_token, "?role=viewer").await, "");
    });
}

#[test]
fn a_caller_that_manages_too_fast_waits() {
    let limits =
        [("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "2"), ("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE", "1")];
    on_each_database_with(&limits, async |world| {
        let (ada, bob) = (world.somebody("ada").await, world.somebody("bob").await);
        let list = |token: &str| world.get("/v1/organizations").bearer(token);
        world.organization(&ada, "Acme").await;
        let write =
            world.post("/v1/organizations", &json!({"name": "x"})).bearer(&ada.access_token).send().await;
        assert_eq!((write.status, write.code().as_str()), (429, "rate_limited"));
        assert_eq!(write.header("retry-after"), "60");
        // Reads have a limit of their own, and so has everybody.
        for _ in 0..2 {
            list(&ada.access_token).data().await;
        }
        assert_eq!(list(&ada.access_token).refused().await, (429, "rate_limited".into()));
        list(&bob.access_token).data().await;
        // Models are no management, however often they are asked for.
        for _ in 0..5 {
            world.get("/v1/models").bearer(&ada.access_token).bare().await;
        }
        world.clock.advance_ms(30_000);
        list(&ada.access_token).data().await;
    });
    let off = [limits[0], limits[1], ("TOLLKEEPER_LIMITS__ENABLED", "false")];
    on_each_database_with(&off, async |world| {
        let ada = world.somebody("ada").await;
        for _ in 0..5 {
            world.get("/v1/organizations").bearer(&ada.access_token).data().await;
        }
    });
}
