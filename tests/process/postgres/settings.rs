//! Settings of a role or a database, which must not weaken the service's own sessions.

use futures_util::future::join_all;
use http::Method;
use serde_json::json;
use tollkeeper::api::routes::dispatcher;
use tollkeeper::app::App;
use tollkeeper::db::sql;
use tollkeeper::web::route::Listener;

use super::database_of;
use support::books::{assert_books, wallet};
use support::http::Call;
use support::postgres::Cluster;
use support::process::Start;
use support::replicas::generous_catalog;
use support::world::{ALLOW_FSYNC_OFF, Folder, World, runtime};
use support::{Database, on_postgres};

#[on_postgres]
fn sessions_override_durability_and_isolation_of_the_database(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    runtime().block_on(async {
        for (set, due) in [
            ("off", "on"),
            ("local", "on"),
            ("remote_write", "on"),
            ("on", "on"),
            ("remote_apply", "remote_apply"),
        ] {
            for isolation in ["serializable", "repeatable read", "read committed"] {
                let url = cluster.new_database().await;
                let name = database_of(&url);
                cluster.admin(&format!("ALTER DATABASE {name} SET synchronous_commit = {set}")).await;
                let set_isolation =
                    format!("ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'");
                cluster.admin(&set_isolation).await;
                let world = World::new("postgres", Some(url), &[]).await;
                let mut tx = world.app.db.write().await.unwrap();
                let found: (String, String) = sql(
                    "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')",
                )
                .one(&mut tx)
                .await
                .unwrap();
                assert_eq!(found, (due.to_owned(), "read committed".to_owned()), "{set}, {isolation}");
                let mut read = world.app.db.read().await.unwrap();
                let found: (String,) =
                    sql("SELECT current_setting('transaction_isolation')").one(&mut read).await.unwrap();
                assert_eq!(found.0, "read committed", "{isolation}");
            }
        }
    });
}

#[on_postgres]
fn sessions_set_limits_and_plans_by_their_purpose(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    runtime().block_on(async {
        let url = cluster.new_database().await;
        let name = database_of(&url);
        for set in ["statement_timeout = 0", "enable_seqscan = on", "jit = on", "plan_cache_mode = auto"] {
            cluster.admin(&format!("ALTER DATABASE {name} SET {set}")).await;
        }
        let world = World::new("postgres", Some(url), &[]).await;
        let settings = || {
            sql("SELECT concat_ws(' ', current_setting('statement_timeout'),
                     current_setting('idle_in_transaction_session_timeout'), current_setting('plan_cache_mode'),
                     current_setting('enable_seqscan'), current_setting('jit'),
                     current_setting('default_transaction_read_only'))")
        };
        let mut tx = world.app.db.write().await.unwrap();
        let (write,): (String,) = settings().one(&mut tx).await.unwrap();
        let mut tx = world.app.db.read().await.unwrap();
        let (read,): (String,) = settings().one(&mut tx).await.unwrap();
        let (heavy,): (String,) = settings().heavy().one(&mut tx).await.unwrap();
        assert_eq!(write, "10s 5s force_generic_plan off off off");
        assert_eq!(read, "10s 5s force_generic_plan off off on");
        assert_eq!(heavy, "10s 5s auto on on on");
    });
}

/// With `repeatable read` or `serializable`, PostgreSQL would abort concurrent transactions on the same
/// wallet.
#[on_postgres]
fn parallel_reservations_succeed_whatever_the_default_isolation(_: Database) {
    const CALLS: usize = 200;
    let Some(cluster) = Cluster::shared() else { return };
    let folder = Folder::new();
    let catalog = generous_catalog(&folder);
    let settings = [
        ("TOLLKEEPER_CATALOG_FILE", catalog.as_str()),
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000"),
    ];
    runtime().block_on(async {
        for isolation in ["repeatable read", "serializable"] {
            let url = cluster.new_database().await;
            let name = database_of(&url);
            let set = format!("SET default_transaction_isolation = '{isolation}'");
            cluster.admin(&format!("ALTER ROLE postgres IN DATABASE {name} {set}")).await;
            let world = World::new("postgres", Some(url), &settings).await;
            let ada = world.user("ada").await;
            let place = world.place(&ada, "Acme").await;
            let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
            // Three replicas are used, because a single one would write reservations of the same wallet
            // together.
            let mut entrances = vec![world.service.clone()];
            for _ in 0..2 {
                let app = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
                app.boot().await.unwrap();
                entrances.push(dispatcher(&app.api, Listener::Service));
            }
            let question = json!({"credential": key, "operation": "chat", "model": "svc-1",
                                  "max_tokens": 500, "estimated_prompt_tokens": 1_000});
            let calls = (0..CALLS).map(|number| {
                let call = Call::new(&entrances[number % 3], Method::POST, "/service/v1/authorize");
                tokio::spawn(call.bearer(world.app.api.service_token.expose()).json(&question).send())
            });
            for answer in join_all(calls).await {
                let answer = answer.unwrap();
                assert_eq!(answer.status, 200, "{isolation}: {}", answer.text);
                assert_eq!(answer.json()["allowed"], true, "{isolation}: {}", answer.text);
            }
            // Each call reserves 1,000 x 0.000002 + 500 x 0.000006.
            assert_eq!(wallet(&world, &place.organization).await, (0, 200 * 5_000_000));
            assert_books(&world).await;
        }
    });
}

#[on_postgres]
fn postgres_without_fsync_is_refused(_: Database) {
    let (Some(cluster), Some(syncing)) = (Cluster::shared(), Cluster::syncing()) else { return };
    let folder = Folder::new();
    let url = runtime().block_on(cluster.empty_database());
    let allowed = Start::new(&folder.0).database(Some(&url));
    let refused = allowed.clone().unset(ALLOW_FSYNC_OFF);
    for ended in [refused.refused(), refused.command(&["audit"])] {
        assert_eq!(ended.code, Some(1));
        for words in ["`fsync = off`", "ALTER SYSTEM SET fsync = on", "database_allow_fsync_off"] {
            assert!(ended.log.contains(words), "{}", ended.log);
        }
    }
    assert_eq!(allowed.run().stop().code, Some(0));
    let url = runtime().block_on(syncing.empty_database());
    let start = Start::new(&folder.0).database(Some(&url)).unset(ALLOW_FSYNC_OFF);
    assert_eq!(start.run().stop().code, Some(0));
}
