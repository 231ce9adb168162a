//! The pages of models and their prices.

use support::console::Browser;
use support::world::{Folder, World};
use support::{Database, on_each_database};

#[on_each_database]
async fn models_are_listed_with_prices_and_code(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, "/console/models").await;
    for words in
        ["svc-1-turbo", "svc-embedding-1-pro", "in USD per million tokens", ">2.00</td>", ">6.00</td>"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    let page = browser.page(&world, "/console/models/svc-1").await;
    let url = &world.app.api.public_url;
    for words in [
        format!("curl {url}/v1/chat/completions"),
        format!("base_url=&#34;{url}/v1&#34;"),
        "chat, streaming, function calling".to_owned(),
        ">2.00</td>".to_owned(),
    ] {
        assert!(page.contains(&words), "{words}: {page}");
    }
    let page = browser.page(&world, "/console/models/svc-embedding-1").await;
    assert!(page.contains("/v1/embeddings") && page.contains("client.embeddings.create("), "{page}");
    for path in ["/console/models/nothing", "/console/models/a/b"] {
        assert_eq!(browser.get(&world, path).send().await.status, 404, "{path}");
    }
    assert_eq!(Browser::signed_out().get(&world, "/console/models").send().await.status, 303);
}

const CATALOG: &str = r#"
currency = "USD"

[[volume_discounts]]
threshold = 1000000
discount = "0.05"

[[models]]
id = "org/<model>"
kind = "chat"
description = "<script>alert(1)</script>"
owned_by = "acme & sons"
created = 1704067200
max_tokens = 1000
max_requests_per_min = 60
max_concurrent_requests = 5
prices = [
  { effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", cached_prompt_tokens = "0.0000005", completion_tokens = "0.00001" },
  { effective_at = "2030-01-01T00:00:00Z", prompt_tokens = "0.000003", completion_tokens = "0.00003" },
]

[[models]]
id = "org/unpriced:1"
kind = "chat"
description = "Without a price"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
max_requests_per_min = 60
max_concurrent_requests = 5
"#;

#[on_each_database]
fn prices_have_versions_and_discounts(database: Database) {
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    std::fs::write(&file, CATALOG.replace("org/<model>", "org/model:7b")).unwrap();
    database.run(&[("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())], async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "acme").await;
        let browser = world.browser(ada.id).await;
        let page = browser.page(&world, "/console/models").await;
        assert!(page.contains(">1,000,000</td>") && page.contains(">5%</td>"), "{page}");
        assert!(page.contains(">0.50</td>") && page.contains("no price"), "{page}");
        let page = browser.page(&world, "/console/models/org/model:7b").await;
        assert!(page.contains("&#60;script&#62;alert(1)") && !page.contains("<script>alert"), "{page}");
        assert!(page.contains(">30.00</td>") && page.contains("<td>later</td>"), "{page}");
        assert!(page.contains("acme &#38; sons"), "{page}");
        let page = browser.page(&world, "/console/models/org/unpriced:1").await;
        assert!(page.contains("Unavailable: no price configured."), "{page}");
        let playground =
            format!("/console/organizations/{}/projects/{}/playground", place.organization, place.project);
        let page = browser.page(&world, &playground).await;
        assert!(page.contains("No chat models are available."), "neither has a route: {page}");
    });
}

/// Prices are in dollars per million tokens: 0.000003 x 1,000,000 = 3 and so on. Requests and searches have a
/// price each.
#[on_each_database]
fn components_and_conditions_are_shown(database: Database) {
    let catalog = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/components.toml");
    database.run(&[catalog], async |world| {
        let ada = world.user("ada").await;
        let browser = world.browser(ada.id).await;
        let page = browser.page(&world, "/console/models/multi").await.replace('\n', "");
        for cells in [
            "<td>other calls</td><td class=\"number\">3.00</td><td class=\"number\">0.30</td>\
             <td class=\"number\">15.00</td><td>tokens written to the cache: 3.75<br>\
             tokens written to the cache for an hour: 6.00<br>audio tokens of prompts: 40.00<br>\
             reasoning tokens: 20.00<br>requests: 0.001 each<br>searches: 0.01 each</td>",
            "<td>above 200000 prompt tokens</td><td class=\"number\">6.00</td><td class=\"number\">0.60</td>\
             <td class=\"number\">22.50</td><td>requests: 0.001 each</td>",
            "<td>flex</td><td class=\"number\">1.50</td><td class=\"number\">–</td>\
             <td class=\"number\">7.50</td><td>–</td>",
            "<td>sat 00:00 to mon 00:00 UTC</td><td class=\"number\">2.00</td><td class=\"number\">–</td>\
             <td class=\"number\">10.00</td><td>–</td>",
        ] {
            assert!(page.contains(cells), "{cells}: {page}");
        }
        let page = browser.page(&world, "/console/models/vectors").await;
        assert!(
            page.contains("<td>all calls</td>") && page.contains("<td>images: 0.0005 each</td>"),
            "{page}"
        );
    });
}
