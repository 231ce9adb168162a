//! The key cache stays within its limit under a flood of unknown keys.

use serde_json::json;
use support::on_each_database;
use support::world::World;
use tollkeeper::cluster::feed::TRUST_MS;
use tollkeeper::keys::keyring::MAX_UNKNOWN_KEYS;
use tollkeeper::keys::secret::ApiKeySecret;

#[on_each_database]
async fn unknown_keys_take_little_memory_and_evict_no_known_key(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut keys = Vec::new();
    for number in 0..20 {
        keys.push(world.key(&ada, &place, &json!({"name": format!("k{number}")})).await.1);
    }
    for key in &keys {
        world.get("/v1/models").bearer(key).bare().await;
    }
    let before = world.app.keys.keyring.size();
    assert_eq!(before.0, 20);
    let now = world.clock.now();
    // A key with a wrong checksum causes no query; an unknown key with a right checksum causes one query.
    let statements = world.app.db.statement_count();
    let typo = format!("tk_{}", "0".repeat(49));
    for _ in 0..1_000 {
        assert!(world.app.keys.authenticate(&typo, now).await.is_err());
    }
    assert_eq!((world.app.keys.keyring.unknown_count(), world.app.db.statement_count()), (0, statements));
    for _ in 0..MAX_UNKNOWN_KEYS + 4_000 {
        let garbage = ApiKeySecret::generate("tk_", &world.app.random);
        assert!(world.app.keys.authenticate(garbage.expose(), now).await.is_err());
    }
    let unknown = world.app.keys.keyring.unknown_count();
    assert!((1_000..=MAX_UNKNOWN_KEYS).contains(&unknown), "{unknown}");
    assert_eq!(world.app.keys.keyring.size(), before, "invalid keys are cached separately");
    let statements = world.app.db.statement_count();
    for key in &keys {
        world.get("/v1/models").bearer(key).bare().await;
    }
    assert_eq!(world.app.db.statement_count(), statements, "the known keys are still cached");
}

#[on_each_database]
async fn unknown_keys_cost_a_query_a_second_without_the_feed(world: World) {
    world.clock.advance_ms(TRUST_MS);
    let garbage = ApiKeySecret::generate("tk_", &world.app.random);
    let before = world.app.db.statement_count();
    for _ in 0..5 {
        let refused = world.get("/v1/models").bearer(garbage.expose()).refused().await;
        assert_eq!(refused, (401, "invalid_api_key".into()));
    }
    assert_eq!(world.app.db.statement_count(), before + 1);
}
