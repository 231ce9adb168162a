//! Settings of a role or a database don't weaken the service's own sessions.

use tollkeeper::db::sql;

use super::database_of;
use crate::support::postgres::Cluster;
use crate::support::process::Start;
use crate::support::world::{ALLOW_FSYNC_OFF, Folder, World, runtime};

#[test]
fn sessions_override_durability_and_isolation_of_the_database() {
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

#[test]
fn postgres_without_fsync_is_refused() {
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
