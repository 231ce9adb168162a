//! Two users change the same API key.

use serde_json::json;

use support::console::hidden;
use support::world::World;
use support::{Database, on_each_database};

#[on_each_database]
fn change_of_a_key_that_was_overtaken_is_decided_by_the_person(database: Database) {
    database.run(&[], async |world: World| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let body = json!({"name": "Checkout", "restrictions": {"allowed_ips": ["::1"], "models": ["svc-1"]}});
        let (key, _) = world.key(&ada, &place, &body).await;
        let browser = world.browser(ada.id).await;
        let path =
            format!("/console{}/api-keys/{key}/edit", place.project_path().strip_prefix("/v1").unwrap());
        let version = hidden(&browser.page(&world, &path).await, "version");

        let api = format!("{}/api-keys/{key}", place.project_path());
        let theirs = json!({"restrictions": {"allowed_ips": ["::2", "<b>"]}});
        let refused =
            world.call(http::Method::PUT, &api).json(&theirs).bearer(&ada.access_token).send().await;
        assert_eq!(refused.status, 400);
        let theirs = json!({"description": "<b>theirs</b>", "restrictions": {"allowed_ips": ["::2", "::3"]}});
        world.call(http::Method::PUT, &api).json(&theirs).bearer(&ada.access_token).data().await;

        let mine = [
            ("version", version.as_str()),
            ("was.restrictions.models", "svc-1"),
            ("name", "Checkout"),
            ("description", ""),
            ("shown", "permissions"),
            ("permissions", "chat"),
            ("restrictions.allowed_ips", "::1\r\n::4\r\n"),
            ("restrictions.models", ""),
            ("restrictions.models", "svc-1"),
        ];
        let answer = browser.post(&world, &path, &mine).send().await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        for text in [
            "<td class=\"lines\">Nothing</td><td class=\"lines\">&#60;b&#62;theirs&#60;/b&#62;</td>",
            "<td class=\"lines\">::1\n::4</td><td class=\"lines\">::2\n::3</td>",
            "<td class=\"lines\">chat</td><td class=\"lines\">chat\nembeddings\nmodels\nfiles</td>",
            &format!("<a class=\"button\" href=\"{path}\">Keep theirs</a>"),
        ] {
            assert!(answer.text.contains(text), "{text}: {}", answer.text);
        }
        assert!(
            !answer.text.contains("<th scope=\"row\">Name") && !answer.text.contains("name=\"was."),
            "{}",
            answer.text
        );
        let found = world.get(&api).bearer(&ada.access_token).data().await;
        assert_eq!(found["restrictions"]["allowed_ips"], json!(["::2", "::3"]));

        // The button "Use mine" sends the values that the page contains.
        let version = hidden(&answer.text, "version");
        let again: Vec<_> = mine
            .into_iter()
            .filter(|(name, _)| *name != "version")
            .chain([("version", version.as_str())])
            .collect();
        browser.done(&world, &path, &again).await;
        let found = world.get(&api).bearer(&ada.access_token).data().await;
        assert_eq!(found["restrictions"]["allowed_ips"], json!(["::1", "::4"]));
        assert_eq!((&found["description"], &found["permissions"]), (&json!(null), &json!(["chat"])));
        assert_eq!(found["restrictions"]["models"], json!(["svc-1"]));
    });
}
