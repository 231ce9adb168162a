//! Deferred statements, which are sent with the next statement or the commit. They keep their order, and no
//! error is lost.

use std::time::Duration;

use tollkeeper::db::{Constraint, Db, Error, Lock, Settings, Statement, Tx, sql};

use super::{count, insert_user, on_one_thread, with_db};
use support::postgres::Cluster;
use support::{Database, on_each_database, on_postgres};

fn user(id: &str, name: &str) -> Statement {
    sql("INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at)
         VALUES ($1, $2, $2, $2, $2, 'x', 1)")
    .bind(id)
    .bind(name)
}

fn rename(from: &str, to: &str) -> Statement {
    sql("UPDATE users SET username = $2 WHERE username = $1").bind(from).bind(to)
}

fn session(user: &str) -> Statement {
    sql("INSERT INTO sessions (id, user_id, remember_me, created_at, expires_at) VALUES ('session_1', $1, 0, 1, 2)")
        .bind(user)
}

async fn names(tx: &mut Tx) -> Vec<String> {
    let rows: Vec<(String,)> = sql("SELECT username FROM users ORDER BY id").all(tx).await.unwrap();
    rows.into_iter().map(|(name,)| name).collect()
}

#[on_each_database]
fn deferred_statements_run_in_order(database: Database) {
    with_db(database, async |db| {
        let before = db.statement_count();
        let mut tx = db.write().await.unwrap();
        user("user_1", "a").defer(&mut tx).await.unwrap();
        rename("a", "b").defer(&mut tx).await.unwrap();
        // An awaited statement runs after the deferred ones.
        assert_eq!(rename("b", "c").execute(&mut tx).await, Ok(1));
        rename("c", "d").defer(&mut tx).await.unwrap();
        assert_eq!(names(&mut tx).await, ["d"]);
        rename("d", "e").defer(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(db.statement_count() - before, 6);
        assert_eq!(names(&mut db.read().await.unwrap()).await, ["e"]);

        // The transaction has only deferred statements, more than can be queued.
        let mut tx = db.write().await.unwrap();
        for number in 0..100 {
            rename(&format!("e{}", "x".repeat(number)), &format!("e{}", "x".repeat(number + 1)))
                .defer(&mut tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(names(&mut db.read().await.unwrap()).await, [format!("e{}", "x".repeat(100))]);
    });
}

#[on_each_database]
fn row_lock_costs_nothing_on_sqlite(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        user("user_1", "a").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let locked = || sql("SELECT id FROM users WHERE id = $1").bind("user_1");
        for lock in [Lock::Change, Lock::Removal] {
            let mut tx = db.write().await.unwrap();
            let before = db.statement_count();
            locked().lock(&mut tx, lock).await.unwrap();
            assert_eq!(db.statement_count() - before, u64::from(db.is_postgres()));
            assert_eq!(names(&mut tx).await, ["a"]);
            if db.is_postgres() {
                // A transaction with a short lock timeout finds the row locked.
                let mut other = db.write_behind().await.unwrap();
                let refused = rename("a", "b").execute(&mut other).await;
                assert!(matches!(refused, Err(Error::Unavailable(_))), "{lock:?}: {refused:?}");
                // An insert that refers to the row waits only if the row is locked for removal.
                let mut other = db.write_behind().await.unwrap();
                let refers = session("user_1").execute(&mut other).await;
                assert_eq!(refers.is_ok(), lock == Lock::Change, "{refers:?}");
            }
            // A failed transaction takes no lock.
            assert!(user("user_1", "a").execute(&mut tx).await.is_err());
            assert!(locked().lock(&mut tx, lock).await.is_err());
            assert!(tx.commit().await.is_err());
        }
    });
}

#[on_each_database]
fn deferred_error_is_returned_by_the_next_statement(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        user("user_1", "a").defer(&mut tx).await.unwrap();
        let result = match user("user_2", "a").defer(&mut tx).await {
            Err(error) => {
                assert!(!db.is_postgres(), "PostgreSQL must not wait for the statement");
                error
            }
            Ok(()) => {
                // The server refuses later statements, but returns the first error.
                user("user_3", "c").defer(&mut tx).await.unwrap();
                sql("SELECT username FROM users").optional::<(String,)>(&mut tx).await.unwrap_err()
            }
        };
        assert!(
            matches!(result, Error::Unique(Constraint::UserEmail | Constraint::UserUsername)),
            "{result:?}"
        );
        let later = user("user_4", "d").defer(&mut tx).await;
        assert!(matches!(later, Err(Error::Internal(_))), "{later:?}");
        assert!(insert_user(&mut tx, "user_5", "e", "e").await.is_err());
        assert!(matches!(tx.commit().await, Err(Error::Internal(_))));
        assert_eq!(count(&db, "users").await, 0);
    });
}

#[on_each_database]
fn deferred_error_is_returned_by_the_commit(database: Database) {
    with_db(database, async |db| {
        for begun in [false, true] {
            let mut tx = db.write().await.unwrap();
            if begun {
                insert_user(&mut tx, "user_0", "z", "z").await.unwrap();
            }
            let mut result = Ok(());
            for (id, name) in [("user_1", "a"), ("user_2", "a"), ("user_3", "c")] {
                result = result.and(user(id, name).defer(&mut tx).await);
            }
            tx.announce(tollkeeper::db::Change::Catalog);
            let committed = tx.commit().await;
            assert!(committed.is_err());
            let result = result.and(committed).unwrap_err();
            assert!(
                matches!(result, Error::Unique(Constraint::UserEmail | Constraint::UserUsername)),
                "{result:?}"
            );
            assert_eq!(count(&db, "users").await, 0);
            // The connection still works.
            let mut tx = db.write().await.unwrap();
            insert_user(&mut tx, "user_1", "a", "a").await.unwrap();
            drop(tx);
        }
    });
}

#[on_each_database]
fn deferred_statement_that_cannot_be_prepared_fails_the_transaction(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        let first = user("user_1", "a").defer(&mut tx).await;
        let second = sql("UPDATE no_such_table SET a = 1").defer(&mut tx).await;
        let committed = tx.commit().await;
        assert!(first.is_ok() && committed.is_err());
        assert!(matches!(second.and(committed), Err(Error::Internal(_))));
        assert_eq!(count(&db, "users").await, 0);
    });
}

#[on_each_database]
fn deferred_statements_are_rolled_back_without_a_commit(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        user("user_1", "a").defer(&mut tx).await.unwrap();
        drop(tx);
        // Transactions are canceled while they run, more often than the pool has connections.
        for number in 0..40 {
            let work = async {
                let mut tx = db.write().await?;
                user("user_1", "a").defer(&mut tx).await?;
                user("user_2", "b").defer(&mut tx).await?;
                rename("a", "c").execute(&mut tx).await?;
                user("user_3", "d").defer(&mut tx).await?;
                std::future::pending::<Result<(), Error>>().await
            };
            let _ = tokio::time::timeout(Duration::from_micros(number * 50), work).await;
        }
        let mut tx = db.write().await.unwrap();
        user("user_1", "a").defer(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(names(&mut db.read().await.unwrap()).await, ["a"]);
    });
}

#[on_each_database]
fn read_handle_defers_nothing(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.read().await.unwrap();
        let written = user("user_1", "a").defer(&mut tx).await;
        assert!(matches!(written, Err(Error::Internal(_))), "{written:?}");
        assert_eq!(count(&db, "users").await, 0);
    });
}

/// Runs on one thread, which the cluster's `stop` and `start` block. So the pool still considers connections
/// alive that have died in the meantime.
#[on_postgres]
fn dead_connections_are_skipped_at_the_begin(_: Database) {
    on_one_thread(async {
        let Some(cluster) = Cluster::private() else { return };
        let db = Db::open(&Settings::Postgres { url: cluster.new_database().await }).unwrap();
        for round in 0..2 {
            let mut open = Vec::new();
            for _ in 0..16 {
                let mut tx = db.write().await.unwrap();
                sql("SELECT id FROM users").execute(&mut tx).await.unwrap();
                open.push(tx);
            }
            for tx in open {
                tx.commit().await.unwrap();
            }
            cluster.stop();
            cluster.start();
            let mut tx = db.write().await.unwrap();
            user(&format!("user_{round}"), &format!("a{round}")).defer(&mut tx).await.unwrap();
            if round == 0 {
                assert_eq!(rename("a0", "b").execute(&mut tx).await, Ok(1));
            }
            tx.commit().await.unwrap();
        }
        assert_eq!(names(&mut db.read().await.unwrap()).await, ["b", "a1"]);

        // This transaction began before the server stopped, so its writes are lost and it isn't retried.
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_2", "c", "c").await.unwrap();
        cluster.stop();
        cluster.start();
        user("user_3", "d").defer(&mut tx).await.unwrap();
        assert!(matches!(tx.commit().await, Err(Error::Unavailable(_))));
        assert_eq!(count(&db, "users").await, 2);
    });
}

/// A migration changes the result type of prepared statements, so a transaction that begins with one is
/// retried.
#[on_each_database]
fn statements_are_prepared_again_after_a_migration(database: Database) {
    with_db(database, async |db| {
        let every = || sql("SELECT * FROM users");
        for number in 0..3 {
            let column = format!("later_{number}");
            let mut tx = db.write().await.unwrap();
            every().execute(&mut tx).await.unwrap();
            sql(format!("ALTER TABLE users ADD COLUMN {column} TEXT")).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            let mut tx = db.write().await.unwrap();
            user(&format!("user_{number}"), &format!("a{number}")).defer(&mut tx).await.unwrap();
            let row: (String,) = every().one(&mut tx).await.unwrap();
            assert_eq!(row.0, "user_0");
            tx.commit().await.unwrap();
            assert_eq!(count(&db, "users").await, number + 1);
        }
    });
}
