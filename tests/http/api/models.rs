//! The model catalog and the price list over HTTP (docs/contract/models.md).

use serde_json::json;
use support::on_each_database;
use support::world::World;

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
        let expected = json!({"id": "svc-1", "object": "model", "created": 1_704_067_200, "owned_by": "tollkeeper",
            "permission": [], "root": "svc-1", "parent": null, "capabilities": capabilities});
        assert_eq!(list["data"][0], expected);
        assert_eq!(list["data"][3]["capabilities"], json!({"embeddings": true}));
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
