//! PostgreSQL behind a pooler, which assigns its sessions to transactions or to connections.

use futures_util::future::join_all;
use tokio::time::{Duration, Instant};
use tokio_postgres::{NoTls, SimpleQueryMessage};
use tollkeeper::db::{Db, Error, Settings, Tx, sql};

use super::database_of;
use support::pooler_stories::run_through_a_pooler;
use support::postgres::{Cluster, Pooler};
use support::process::{Start, until};
use support::replicas::Replicas;
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// Settings that a session has kept from a client, except for those that poolers set for each client.
const LEFT: &str = "SELECT COALESCE(string_agg(name, ' '), '') FROM pg_settings
     WHERE source = 'session' AND name IN ('statement_timeout', 'idle_in_transaction_session_timeout',
         'lock_timeout', 'default_transaction_isolation', 'default_transaction_read_only', 'plan_cache_mode',
         'enable_seqscan', 'jit', 'synchronous_commit')";

/// The number of statements and locks that a session has kept.
const KEPT: &str = "SELECT (SELECT count(*) FROM pg_prepared_statements)
     + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())";

const SETTINGS: &str = "SELECT concat_ws(' ', current_setting('statement_timeout'),
     current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'),
     current_setting('transaction_isolation'), current_setting('transaction_read_only'),
     current_setting('enable_seqscan'), current_setting('jit'), current_setting('synchronous_commit'))";

fn open(pooler: &Pooler, url: &str) -> Db {
    Db::open(&Settings::Postgres { url: pooler.url(url) }).unwrap()
}

/// Another client of the pooler.
struct Client(tokio_postgres::Client);

impl Client {
    async fn new(pooler: &Pooler, url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(&pooler.plain_url(url), NoTls).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// Returns the value that a query returns.
    async fn ask(&self, question: &str) -> String {
        let answer = self.0.simple_query(question).await.unwrap();
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
            _ => None,
        });
        row.unwrap()
    }

    /// Asserts that the session has kept none of our settings, statements or locks.
    async fn assert_untouched(&self) {
        assert_eq!((self.ask(LEFT).await.as_str(), self.ask(KEPT).await.as_str()), ("", "0"));
    }
}

async fn settings(tx: &mut Tx, is_heavy: bool) -> String {
    let statement = sql(SETTINGS);
    let (found,) = if is_heavy { statement.heavy() } else { statement }.one(tx).await.unwrap();
    found
}

#[on_postgres]
fn settings_are_those_of_a_transaction(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    // The pool has one session, which all transactions and clients use in turn.
    let Some(pooler) = cluster.pooler("transaction", 1) else { return };
    runtime().block_on(async {
        let url = cluster.new_database().await;
        let database = database_of(&url);
        for set in ["synchronous_commit = off", "default_transaction_isolation = 'serializable'", "jit = on"]
        {
            cluster.admin(&format!("ALTER DATABASE {database} SET {set}")).await;
        }
        let db = open(&pooler, &url);
        let client = Client::new(&pooler, &url).await;
        for _ in 0..3 {
            let mut tx = db.write().await.unwrap();
            assert_eq!(settings(&mut tx, false).await, "10s 5s 4s read committed off off off on");
            tx.commit().await.unwrap();
            client.assert_untouched().await;
            let mut tx = db.write_behind().await.unwrap();
            assert_eq!(settings(&mut tx, false).await, "10s 5s 200ms read committed off off off off");
            // The transaction is rolled back in the background.
            drop(tx);
            client.assert_untouched().await;
            let mut tx = db.snapshot().await.unwrap();
            assert_eq!(settings(&mut tx, true).await, "10s 30s 4s repeatable read on on on off");
            tx.commit().await.unwrap();
            let mut tx = db.read().await.unwrap();
            assert_eq!(settings(&mut tx, false).await, "10s 5s 4s read committed on off off off");
            assert_eq!(settings(&mut tx, true).await, "10s 5s 4s read committed on on on off");
            assert!(sql("SELECT no_such_column").optional::<(i64,)>(&mut tx).await.is_err());
            client.assert_untouched().await;
        }
    });
}

/// Reads share connections, and their messages must not be mixed.
#[on_postgres]
fn concurrent_reads_have_a_transaction_each(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(pooler) = cluster.pooler("transaction", 4) else { return };
    runtime().block_on(async {
        let db = open(&pooler, &cluster.new_database().await);
        let reads = (0..4_000_i64).map(|number| {
            let db = db.clone();
            tokio::spawn(async move {
                let text = "SELECT CAST($1 AS BIGINT), current_setting('transaction_read_only')";
                let found: (i64, String) =
                    sql(text).bind(number).one(&mut db.read().await.unwrap()).await.unwrap();
                assert_eq!(found, (number, "on".to_owned()));
            })
        });
        for read in join_all(reads.collect::<Vec<_>>()).await {
            read.unwrap();
        }
    });
}

#[on_postgres]
fn limits_are_in_force_in_transactions_and_reads(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(pooler) = cluster.pooler("transaction", 4) else { return };
    runtime().block_on(async {
        let url = cluster.new_database().await;
        let db = open(&pooler, &url);
        let lock = "LOCK TABLE users IN ACCESS EXCLUSIVE MODE";
        let mut holder = db.write().await.unwrap();
        sql(lock).execute(&mut holder).await.unwrap();
        let (begun, mut behind) = (Instant::now(), db.write_behind().await.unwrap());
        let refused = sql(lock).execute(&mut behind).await.unwrap_err();
        assert!(refused.to_string().contains("55P03"), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        drop((holder, behind));

        let slow = || sql("SELECT CAST(1 AS BIGINT) FROM pg_sleep(20)");
        let (mut tx, mut read) = (db.write().await.unwrap(), db.read().await.unwrap());
        let mut heavy = db.read().await.unwrap();
        let (one, two, three) = tokio::join!(
            slow().one::<(i64,)>(&mut tx),
            slow().one::<(i64,)>(&mut read),
            slow().heavy().one::<(i64,)>(&mut heavy)
        );
        for refused in [one, two, three] {
            assert!(refused.unwrap_err().to_string().contains("57014"), "not ended by the server");
        }
        drop(tx);
        let clients = join_all((0..4).map(|_| Client::new(&pooler, &url))).await;
        for client in &clients {
            client.0.batch_execute("BEGIN").await.unwrap();
        }
        // Each client now has its own session.
        for client in &clients {
            client.assert_untouched().await;
        }
    });
}

#[on_postgres]
fn processes_migrate_at_the_same_time_through_a_pooler(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(pooler) = cluster.pooler("transaction", 4) else { return };
    let url = runtime().block_on(cluster.empty_database());
    let folder = Folder::new();
    let replicas = Replicas::new(3, Some(&pooler.url(&url)), &folder);
    let ended: Vec<_> = std::thread::scope(|scope| {
        let migrating = replicas.starts.iter().map(|start| scope.spawn(|| start.command(&["migrate"])));
        migrating.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
    });
    let applied = ended.iter().filter(|one| one.stdout.contains("V1__initial_schema")).count();
    for one in &ended {
        assert_eq!(one.code, Some(0), "{}", one.log);
    }
    assert_eq!(applied, 1, "{:?}", ended.iter().map(|one| &one.stdout).collect::<Vec<_>>());
    runtime().block_on(async { Client::new(&pooler, &url).await.assert_untouched().await });
    let dump = replicas.starts[0].command(&["backup", "--to", "copy.db"]);
    assert!(dump.log.contains("pg_dump") && !dump.log.contains("pool_mode="), "{}", dump.log);
}

/// A server refuses to start if the URL lacks the parameter. Later, the error explains the problem.
#[on_postgres]
fn pooler_by_transaction_is_noticed(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(pooler) = cluster.pooler("transaction", 2) else { return };
    let runtime = runtime();
    let url = runtime.block_on(cluster.new_database());
    let folder = Folder::new();
    let start = Start::new(&folder.0).database(Some(&pooler.plain_url(&url)));
    for ended in [start.refused(), start.command(&["audit"])] {
        assert_eq!(ended.code, Some(1), "{}", ended.log);
        let words = "tollkeeper: the database is behind a pooler that shares its connections by transaction: \
                     add the parameter pool_mode=transaction to the URL of the database";
        assert!(ended.log.contains(words), "{}", ended.log);
    }
    runtime.block_on(async {
        let other = Client::new(&pooler, &url).await;
        other.assert_untouched().await;
        let db = Db::open(&Settings::Postgres { url: pooler.plain_url(&url) }).unwrap();
        let mut read = db.read().await.unwrap();
        let ping = || sql("SELECT CAST(1 AS BIGINT)");
        ping().one::<(i64,)>(&mut read).await.unwrap();
        // The other client uses the session in which the statement was prepared.
        other.0.batch_execute("BEGIN").await.unwrap();
        let mut refused = None;
        for _ in 0..8 {
            refused = ping().one::<(i64,)>(&mut read).await.err().or(refused);
        }
        match refused {
            Some(Error::Unavailable(what)) => assert!(what.contains("pool_mode=transaction"), "{what}"),
            other => panic!("{other:?}"),
        }
    });
}

#[on_postgres]
fn pooler_by_session_needs_no_parameter(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let Some(pooler) = cluster.pooler("session", 40) else { return };
    let url = runtime().block_on(cluster.empty_database());
    let folder = Folder::new();
    let start = Start::new(&folder.0).database(Some(&pooler.plain_url(&url)));
    let server = start.run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    server.report(&place, "one");
    assert!(until(|| server.requests(&place, &ada) == 1));
    assert_eq!(server.stop().code, Some(0));
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
}

#[on_postgres]
fn stories_run_through_a_pooler(_: Database) {
    let stories = [
        "database::deferred::deferred",
        "database::every_type",
        "database::immutable::",
        "database::one_of_many",
        "database::reads::each_caller",
        "database::reads::refused",
        "database::transaction_fails",
        "replicas::journey::",
        "replicas::revocation::revocations",
        "replicas::spending::",
    ];
    run_through_a_pooler(&stories);
}
