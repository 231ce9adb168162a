//! The operator's event for a catalog file that was refused on a reload.

use serde_json::{Value, json};
use tollkeeper::catalog::activation::reload;
use tollkeeper::events::EventType;

use super::{File, catalog};
use support::twin::Twin;
use support::webhooks::{operator_hook, take_operator_events};
use support::{Database, on_each_database};

#[on_each_database]
fn refused_file_is_told_once_while_its_mistakes_last(database: Database) {
    let file = File::new(&["m"]);
    database.run(&[("TOLLKEEPER_CATALOG_FILE", file.name())], async |world| {
        let good = catalog(&["m"]);
        file.write(&good);
        reload(&world.app.catalogs).await.unwrap();
        let [_, other] = Twin::both(&world).await;
        let none: [Value; 0] = [];
        let told = async || {
            for app in [&world.app, &other.app] {
                // Reloads twice, like a replica whose catalog is outdated.
                reload(&app.catalogs).await.unwrap();
                reload(&app.catalogs).await.unwrap();
                assert_eq!(app.catalog.is_refused(), std::fs::read_to_string(&file.path).unwrap() != good);
            }
            take_operator_events(&world).await
        };
        let event = |mistakes: u64, messages: &[String]| {
            json!({"type": "catalog.refused", "timestamp": "2026-03-10T12:00:00.000Z",
                "data": {"mistakes": mistakes, "messages": messages}})
        };
        let name = file.name();
        let without = good.replace("max_tokens = 100\n", "");
        let missing = [format!("{name}:1: model `m`: the key `max_tokens` is missing")];

        // No webhook exists yet; a webhook that is added later gets the event.
        file.write(&without);
        assert_eq!(told().await, none);
        operator_hook(&world, "https://example.com/in", &[EventType::CatalogRefused]).await;
        assert_eq!(told().await, [event(1, &missing)]);
        assert_eq!(told().await, none);

        // Other mistakes, and a value that may be a secret.
        let upstream =
            "[[upstreams]]\nid = \"u\"\nkind = \"vllm\"\nurl = 7\ncredential_env = \"hunter2 hunter2\"\n";
        file.write(&format!("{good}{upstream}"));
        let [secret] = told().await.try_into().unwrap();
        assert_eq!(secret["type"], "catalog.refused");
        assert!(secret["data"]["messages"][0].as_str().unwrap().starts_with(&format!("{name}:")), "{secret}");
        assert!(!secret.to_string().contains("hunter2"), "{secret}");

        // The valid file is accepted, and the invalid file is refused again for the same reason as before.
        file.write(&good);
        assert_eq!(told().await, none);
        file.write(&without);
        assert_eq!(told().await, [event(1, &missing)]);
        file.write(&good);
        assert_eq!(told().await, none);
    });
}
