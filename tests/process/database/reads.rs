//! Concurrent reads. Each caller gets its own answer, regardless of other callers.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tollkeeper::db::{Db, Error, Settings, sql};

use super::{insert_user, on_one_thread, with_db};
use support::postgres::Cluster;
use support::{Database, on_each_database, on_postgres};

const EMAIL: &str = "SELECT email FROM users WHERE id = $1";

async fn email(db: Db, id: String) -> Result<Option<String>, Error> {
    let found: Option<(String,)> = sql(EMAIL).bind(id).optional(&mut db.read().await?).await?;
    Ok(found.map(|(email,)| email))
}

/// Reads all ids at the same time. Returns the answers by id.
async fn ask(db: &Db, ids: &[String]) -> HashMap<String, Result<Option<String>, Error>> {
    let mut asking = JoinSet::new();
    for id in ids {
        let (db, id) = (db.clone(), id.clone());
        asking.spawn(async move { (id.clone(), email(db, id).await) });
    }
    asking.join_all().await.into_iter().collect()
}

async fn add_users(db: &Db, count: usize) {
    let mut tx = db.write().await.unwrap();
    for number in 0..count {
        let name = format!("{number}@a.test");
        insert_user(&mut tx, &format!("user_{number}"), &name, &name).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[on_each_database]
fn each_caller_gets_its_own_answer(database: Database) {
    with_db(database, async |db| {
        add_users(&db, 300).await;
        // Every third id doesn't exist.
        let ids: Vec<String> = (0..1_500)
            .map(|number| match number % 3 {
                0 => format!("nobody_{number}"),
                _ => format!("user_{}", number % 300),
            })
            .collect();
        let answers = ask(&db, &ids).await;
        for id in &ids {
            let email = id.strip_prefix("user_").map(|number| format!("{number}@a.test"));
            assert_eq!(answers[id], Ok(email), "{id}");
        }
    });
}

#[on_each_database]
fn refused_or_cancelled_read_does_not_affect_others(database: Database) {
    with_db(database, async |db| {
        add_users(&db, 40).await;
        let mut ids: Vec<String> = (0..40).map(|number| format!("user_{number}")).collect();
        // PostgreSQL doesn't accept this character in text.
        ids.insert(20, "user_\0".to_owned());
        let answers = ask(&db, &ids).await;
        assert_eq!(answers["user_\0"].is_err(), db.is_postgres(), "{:?}", answers["user_\0"]);
        for number in 0..40 {
            assert_eq!(answers[&format!("user_{number}")], Ok(Some(format!("{number}@a.test"))));
        }
        for round in 0..20 {
            let mut leaving: Vec<_> =
                (0..40).map(|number| tokio::spawn(email(db.clone(), format!("user_{number}")))).collect();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let staying = leaving.split_off(20);
            leaving.iter().for_each(tokio::task::JoinHandle::abort);
            for (number, one) in staying.into_iter().enumerate() {
                let answer = tokio::time::timeout(Duration::from_secs(20), one).await;
                assert_eq!(
                    answer.expect("it waits forever").unwrap(),
                    Ok(Some(format!("{}@a.test", number + 20)))
                );
            }
        }
    });
}

#[on_postgres]
fn connections_open_when_all_others_are_busy(database: Database) {
    let open = |db: &Db| db.connections().into_iter().find(|one| one.purpose == "read").unwrap().open;
    with_db(database, async |db| {
        add_users(&db, 1).await;
        let id = "user_0".to_owned();
        for _ in 0..20 {
            email(db.clone(), id.clone()).await.unwrap();
        }
        assert_eq!(open(&db), 1);
        ask(&db, &vec![id; 100]).await;
        assert_eq!(open(&db), 4);
    });
}

#[on_postgres]
fn closed_connection_loses_no_answer(_: Database) {
    on_one_thread(async {
        let Some(cluster) = Cluster::private() else { return };
        let url = cluster.new_database().await;
        let db = Db::open(&Settings::Postgres { url }).unwrap();
        add_users(&db, 100).await;
        let ids: Vec<String> = (0..100).map(|number| format!("user_{number}")).collect();
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tollkeeper'";
        for _ in 0..10 {
            let (answers, ended) = tokio::join!(ask(&db, &ids), cluster.ask(end));
            // A connection may be closed twice during the same read, which then fails.
            let wrong =
                answers.values().filter(|answer| !matches!(answer, Ok(Some(_)) | Err(Error::Unavailable(_))));
            assert_eq!(wrong.count(), 0, "{answers:?}");
            assert!(ended >= 0);
            assert!(ask(&db, &ids).await.values().all(|answer| matches!(answer, Ok(Some(_)))));
        }
    });
}
