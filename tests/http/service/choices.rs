//! A reservation covers the highest cost of a call, with several choices and several texts.

use serde_json::{Value, json};

use super::CATALOG;
use support::books::{assert_books, wallet};
use support::http::Call;
use support::on_each_database;
use support::world::{Place, START, World};

const AUTHORIZE: &str = "/service/v1/authorize";

struct Scene {
    place: Place,
    key_id: String,
    key: String,
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    Scene { place, key_id, key }
}

impl Scene {
    async fn ask(&self, world: &World, more: Value) -> Value {
        let mut body = json!({"credential": self.key, "operation": "chat", "model": "m"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.ask(AUTHORIZE, &body).bare().await
    }

    async fn report(&self, world: &World, use_: (&str, &str), tokens: [i64; 2], decision: &Value) {
        let event = json!({"id": use_.0, "source": "s", "time": START, "api_key_id": self.key_id, "model": use_.0,
            "kind": use_.1, "prompt_tokens": tokens[0], "completion_tokens": tokens[1],
            "reservation_id": decision["reservation"]["id"]});
        let answer = world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await;
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    }
}

/// 100 tokens of a prompt and 128 answers of 4,096: 100 x 0.000001 + 128 x 4,096 x 0.000003 = 1.572964.
#[on_each_database(&[CATALOG])]
async fn every_choice_is_reserved(world: World) {
    let scene = scene(&world).await;
    let one = scene.ask(&world, json!({"estimated_prompt_tokens": 100})).await;
    assert_eq!(one["reservation"]["amount"], json!(0.012388), "{one}");
    let all = scene.ask(&world, json!({"estimated_prompt_tokens": 100, "choices": 128})).await;
    assert_eq!(all["reservation"]["amount"], json!(1.572964), "{all}");
    assert_eq!(all["max_tokens"], 4096, "the limit applies to each answer");
    scene.report(&world, ("m", "chat"), [100, 128 * 4096], &all).await;
    assert_eq!(wallet(&world, &scene.place.organization).await, (-1_572_964_000, 12_388_000));
    // The other call's money is still reserved. Invalid numbers of choices and inputs are refused.
    let (_, reserved) = wallet(&world, &scene.place.organization).await;
    assert_eq!(reserved, 12_388_000);
    for wrong in
        [json!({"choices": 0}), json!({"choices": 129}), json!({"inputs": 0}), json!({"inputs": 2049})]
    {
        let mut body = json!({"credential": scene.key, "operation": "chat", "model": "m"});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let answer = world.ask(AUTHORIZE, &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{wrong}");
    }
    assert_books(&world).await;
}

/// 2,048 texts of 8,192 tokens: 2,048 x 8,192 x 0.0000001 = 1.6777216.
#[on_each_database(&[CATALOG])]
async fn every_text_is_reserved(world: World) {
    let scene = scene(&world).await;
    let texts = |more: Value| {
        let mut body = json!({"operation": "embeddings", "model": "e"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let one = scene.ask(&world, texts(json!({}))).await;
    assert_eq!(one["reservation"]["amount"], json!(0.0008192), "{one}");
    let all = scene.ask(&world, texts(json!({"inputs": 2048}))).await;
    assert_eq!(all["reservation"]["amount"], json!(1.6777216), "{all}");
    // An estimate covers all texts together.
    let few = scene.ask(&world, texts(json!({"inputs": 2048, "estimated_prompt_tokens": 10_000}))).await;
    assert_eq!(few["reservation"]["amount"], json!(0.001), "{few}");
    scene.report(&world, ("e", "embeddings"), [2048 * 8192, 0], &all).await;
    assert_eq!(wallet(&world, &scene.place.organization).await, (-1_677_721_600, 1_819_200));
    assert_books(&world).await;
}

#[on_each_database(&[CATALOG])]
async fn forward_auth_reserves_the_same(world: World) {
    let scene = scene(&world).await;
    let ask = async |query: &str| {
        let path = format!("/service/v1/forward-auth?{query}");
        let call = Call::new(&world.service, http::Method::GET, &path);
        let call = call.header("x-tollkeeper-service-token", world.app.api.service_token.expose());
        call.bearer(&scene.key).send().await
    };
    // Without an estimate the prompt counts as 4,096 tokens: 4,096 x 0.000001 + 3 x 4,096 x 0.000003 =
    // 0.04096.
    let chat = ask("operation=chat&model=m&choices=3").await;
    assert_eq!((chat.status, &chat.json()["reservation"]["amount"]), (200, &json!(0.04096)));
    let texts = ask("operation=embeddings&model=e&inputs=2048&request_id=call-1").await;
    assert_eq!((texts.status, &texts.json()["reservation"]["amount"]), (200, &json!(1.6777216)));
    let again = ask("operation=embeddings&model=e&inputs=2048&request_id=call-1").await;
    let name = "x-tollkeeper-reservation-id";
    assert_eq!((again.status, again.header(name)), (200, texts.header(name)));
    let other = ask("operation=embeddings&model=e&inputs=2047&request_id=call-1&mode=nginx").await;
    assert_eq!((other.status, other.header("x-tollkeeper-status")), (403, "409"));
    assert_eq!(other.header("x-tollkeeper-code"), "request_id_conflict");
    assert_eq!(ask("operation=chat&model=m&choices=129").await.status, 400);
    assert_eq!(wallet(&world, &scene.place.organization).await.1, 40_960_000 + 1_677_721_600);
}
