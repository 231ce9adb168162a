//! The model catalog and the price list over HTTP (docs/contract/models.md).

use serde_json::{Value, json};
use support::world::World;
use support::{Database, on_each_database};

#[on_each_database]
async fn catalog_is_listed_without_an_envelope(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    for credential in [&key, &ada.access_token] {
        let list = world.get("/v1/models").bearer(credential).bare().await;
        assert_eq!(list["object"], "list");
        let ids: Vec<_> =
            list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
        let six = [
            "svc-1",
            "svc-1-turbo",
            "svc-1-pro",
            "svc-embedding-1",
            "svc-embedding-1-light",
            "svc-embedding-1-pro",
        ];
        assert_eq!(ids, six);
        let capabilities = json!({"chat": true, "stream": true, "functions": true});
        let expected = json!({"id": "svc-1", "object": "model", "type": "model", "display_name": "svc-1",
            "created": 1_704_067_200, "created_at": "2024-01-01T00:00:00.000Z", "owned_by": "tollkeeper",
            "permission": [], "root": "svc-1", "parent": null, "context_length": null, "max_output_tokens": 4096,
            "dimension": null, "capabilities": capabilities});
        assert_eq!(list["data"][0], expected);
        let embedding = &list["data"][3];
        assert_eq!(embedding["capabilities"], json!({"embeddings": true}));
        let limits = (&embedding["context_length"], &embedding["max_output_tokens"], &embedding["dimension"]);
        assert_eq!(limits, (&json!(8192), &json!(null), &json!(1024)));
        assert_eq!((&list["has_more"], &list["last_id"]), (&json!(false), &json!("svc-embedding-1-pro")));
    }
}

#[on_each_database]
async fn model_has_limits_and_prices(world: World) {
    let ada = world.user("ada").await;
    let model = world.get("/v1/models/svc-1").bearer(&ada.access_token).bare().await;
    let limits = json!({"max_tokens": 4096, "max_requests_per_min": 60, "max_concurrent_requests": 5});
    assert_eq!(model["limits"], limits);
    let pricing = world.get("/v1/billing/pricing").bearer(&ada.access_token).data().await;
    let chat = &pricing["models"]["svc-1"]["chat"];
    assert_eq!(
        model["pricing"],
        json!({"prompt_tokens": chat["prompt_tokens"], "completion_tokens": chat["completion_tokens"]})
    );
    assert_eq!(chat["currency"], "USD");
    let embedding = world.get("/v1/models/svc-embedding-1").bearer(&ada.access_token).bare().await;
    assert_eq!(embedding["pricing"]["completion_tokens"], 0);
    assert_eq!(
        pricing["models"]["svc-embedding-1"]["embeddings"]["tokens"],
        embedding["pricing"]["prompt_tokens"]
    );
    assert!(
        pricing["volume_discounts"][0]["threshold"].is_i64()
            && pricing["volume_discounts"][0]["discount"].is_number()
    );
    let text = world.get("/v1/billing/pricing").bearer(&ada.access_token).send().await.text;
    assert!(!text.contains("e-"), "no exponents: {text}");
}

/// Each current price is shown with its conditions and its separately priced components. The older fields
/// show the prices of calls that meet no condition.
#[on_each_database]
fn components_and_conditions_are_shown(database: Database) {
    let catalog = ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/components.toml");
    database.run(&[catalog], async |world: World| {
        let ada = world.user("ada").await;
        let price = |conditions: [&str; 3], components: &[(&str, &str)]| {
            let [tier, above, hours] = conditions;
            let each =
                |(name, price): &(&str, &str)| format!("{{\"component\":\"{name}\",\"price\":{price}}}");
            let components: Vec<_> = components.iter().map(each).collect();
            format!(
                "{{\"effective_at\":\"2024-01-01T00:00:00.000Z\",\"conditions\":{{\"service_tier\":{tier},\
                 \"above_prompt_tokens\":{above},\"hours\":{hours}}},\"components\":[{}]}}",
                components.join(",")
            )
        };
        let all = [
            ("prompt", "0.000003"),
            ("cached_prompt", "0.0000003"),
            ("cache_write_5m", "0.00000375"),
            ("cache_write_1h", "0.000006"),
            ("audio_prompt", "0.00004"),
            ("completion", "0.000015"),
            ("reasoning", "0.00002"),
            ("request", "0.001"),
            ("search", "0.01"),
        ];
        let long = [
            ("prompt", "0.000006"),
            ("cached_prompt", "0.0000006"),
            ("completion", "0.0000225"),
            ("request", "0.001"),
        ];
        let others = [
            price(["null", "200000", "null"], &long),
            price(["\"flex\"", "null", "null"], &[("prompt", "0.0000015"), ("completion", "0.0000075")]),
            price(
                ["null", "null", "\"sat 00:00 to mon 00:00 UTC\""],
                &[("prompt", "0.000002"), ("completion", "0.00001")],
            ),
        ];
        let without = price(["null"; 3], &all);
        let read = async |path: &str| world.get(path).bearer(&ada.access_token).send().await.text;
        for (path, seed) in [
            ("/v1/models/multi", "\"pricing\":{\"prompt_tokens\":0.000003,\"completion_tokens\":0.000015}"),
            (
                "/v1/billing/pricing",
                "\"chat\":{\"prompt_tokens\":0.000003,\"completion_tokens\":0.000015,\"currency\":\"USD\"}",
            ),
        ] {
            let text = read(path).await;
            assert!(text.contains(seed), "{seed}: {text}");
            assert!(text.contains(&format!("\"prices\":[{without},")), "{without}: {text}");
            assert!(others.iter().all(|other| text.contains(other)), "{others:?}: {text}");
        }
        let vectors = read("/v1/models/vectors").await;
        assert!(vectors.contains("{\"component\":\"image\",\"price\":0.0005}"), "{vectors}");
        let list = read("/v1/models").await;
        assert!(!list.contains("prices") && !list.contains("pricing"), "{list}");
    });
}

#[on_each_database]
async fn errors_of_models_have_no_envelope(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, chat_only) = world.key(&ada, &place, &json!({"name": "c", "permissions": ["chat"]})).await;
    let one = json!({"name": "o", "restrictions": {"models": ["svc-1"]}});
    let (_, one_model) = world.key(&ada, &place, &one).await;
    let cases = [
        ("/v1/models", "", 401, "missing_credentials", "authentication_error"),
        ("/v1/models", "tk_x", 401, "invalid_api_key", "authentication_error"),
        ("/v1/models", chat_only.as_str(), 403, "missing_permission", "permission_error"),
        ("/v1/models/svc-1", chat_only.as_str(), 403, "missing_permission", "permission_error"),
        ("/v1/models/nope", chat_only.as_str(), 404, "model_not_found", "invalid_request_error"),
        ("/v1/models/svc-1-pro", one_model.as_str(), 403, "model_not_allowed", "permission_error"),
        ("/v1/models/a/b%2Fc", one_model.as_str(), 404, "model_not_found", "invalid_request_error"),
    ];
    for (path, credential, status, code, kind) in cases {
        let answer = world.get(path).bearer(credential).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}");
        let body = answer.json();
        assert_eq!(body["error"]["type"], kind);
        assert!(body["error"]["message"].is_string() && body["error"]["param"].is_null());
        assert_eq!(body.as_object().unwrap().len(), 1, "the error alone");
        assert!(answer.header("x-request-id").starts_with("req_"));
    }
    let list = world.get("/v1/models").bearer(&one_model).bare().await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    world.get("/v1/models/svc-1").bearer(&one_model).bare().await;
}

/// Anthropic's SDKs are recognized by one header, and send the key in another.
#[on_each_database]
async fn catalog_has_pages_in_anthropics_form(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let list = async |query: &str| {
        let call = world.get(&format!("/v1/models{query}")).header("x-api-key", &key);
        call.header("anthropic-version", "2023-06-01").bare().await
    };
    let ids = |list: &Value| {
        let data = list["data"].as_array().unwrap();
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let all = list("").await;
    assert_eq!((all["data"].as_array().unwrap().len(), &all["has_more"]), (6, &json!(false)));
    assert_eq!((&all["first_id"], &all["last_id"]), (&json!("svc-1"), &json!("svc-embedding-1-pro")));
    assert_eq!(list("?limit=1000").await, all, "as requested by Claude Code");
    let first = list("?limit=2").await;
    assert_eq!((ids(&first), &first["has_more"]), ("svc-1 svc-1-turbo".to_owned(), &json!(true)));
    let next = list("?limit=4&after_id=svc-1-turbo").await;
    assert_eq!(next["has_more"], false);
    assert_eq!(ids(&next), "svc-1-pro svc-embedding-1 svc-embedding-1-light svc-embedding-1-pro");
    let before = list("?limit=1&before_id=svc-1-pro").await;
    assert_eq!((ids(&before), &before["has_more"]), ("svc-1-turbo".to_owned(), &json!(true)));
    for (query, param) in [("?limit=0", "limit"), ("?limit=1001", "limit"), ("?after_id=nope", "after_id")] {
        let call = world.get(&format!("/v1/models{query}")).bearer(&key);
        let answer = call.header("anthropic-version", "2023-06-01").send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{query}");
        assert_eq!(answer.json()["error"]["param"], param, "{query}");
    }
    // OpenAI's format has no pages, so the parameters of pages are ignored.
    assert_eq!(
        world.get("/v1/models?limit=0").bearer(&key).bare().await["data"].as_array().unwrap().len(),
        6
    );
}

/// Tools list the models before their first call, so a list must not use up the rate of calls.
#[on_each_database]
fn lists_of_models_have_a_rate_of_their_own(database: Database) {
    database.run(&[("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "3")], async |world: World| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let body = json!({"name": "k", "restrictions": {"rate_limit": 1}});
        let (_, key) = world.key(&ada, &place, &body).await;
        for path in ["/v1/models", "/v1/models/svc-1", "/v1/models"] {
            world.get(path).bearer(&key).bare().await;
        }
        assert_eq!(world.get("/v1/models").bearer(&key).refused().await, (429, "rate_limited".to_owned()));
        let chat = json!({"model": "svc-1", "messages": [{"role": "user", "content": "hi"}]});
        world.post("/v1/chat/completions", &chat).bearer(&key).bare().await;
        let refused = world.post("/v1/chat/completions", &chat).bearer(&key).refused().await;
        assert_eq!(refused, (429, "rate_limited".to_owned()), "the key's own rate applies to calls");
        let (_, other) = world.key(&ada, &place, &json!({"name": "o"})).await;
        world.get("/v1/models").bearer(&other).bare().await;
    });
}

#[on_each_database]
fn person_has_one_rate_of_lists_for_all_sessions(database: Database) {
    let reads = ("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "2");
    database.run(&[reads], async |world: World| {
        let ada = world.user("ada").await;
        let again = world.session(ada.id).await;
        let list = |token: &str| world.get("/v1/models").bearer(token);
        list(&ada.access_token).bare().await;
        list(&again.access_token).bare().await;
        for token in [&ada.access_token, &again.access_token] {
            assert_eq!(list(token).refused().await, (429, "rate_limited".to_owned()));
        }
        // Reads of management have their own.
        world.get("/v1/organizations").bearer(&ada.access_token).data().await;
    });
    database.run(&[reads, ("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world: World| {
        let ada = world.user("ada").await;
        for _ in 0..4 {
            world.get("/v1/models").bearer(&ada.access_token).bare().await;
        }
    });
}

#[on_each_database]
async fn key_may_come_as_x_api_key(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let (_, other) = world.key(&ada, &place, &json!({"name": "o"})).await;
    for path in ["/v1/models", "/v1/models/svc-1"] {
        world.get(path).header("x-api-key", &key).bare().await;
        world.get(path).header("x-api-key", &key).bearer(&key).bare().await;
        let differs = world.get(path).header("x-api-key", &key).bearer(&other).refused().await;
        assert_eq!(differs, (400, "conflicting_credentials".to_owned()), "{path}");
        let wrong = world.get(path).header("x-api-key", "tk_x").send().await;
        assert_eq!((wrong.status, wrong.header("x-should-retry")), (401, "false"));
    }
    let managed = world.get("/v1/organizations").header("x-api-key", &key).refused().await;
    assert_eq!(managed, (401, "missing_credentials".to_owned()), "management accepts only bearer tokens");
}
