//! The database layer, with the same tests on both databases.

mod daily_rows;
mod deferred;
mod faults;
mod immutable;
mod payment_tax;
mod reads;
mod schema;
mod webhooks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollkeeper::clock::Time;
use tollkeeper::db::{Constraint, Db, Error, FromRow, Reference, Row, Settings, Tx, Value, sql};
use tollkeeper::ids::UserId;
use tollkeeper::random::Random;

use support::database::copy_template;
use support::postgres::Cluster;
use support::{Database, on_each_database};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollkeeper-db-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("tollkeeper.db")
    }

    fn settings(&self) -> Settings {
        Settings::Sqlite { path: self.file() }
    }

    async fn migrated(&self) -> Db {
        let db = Db::open(&self.settings()).unwrap();
        db.migrate().await.unwrap();
        db
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the test on a new database with the current schema.
fn with_db(database: Database, test: impl AsyncFnOnce(Db)) {
    database.block_on(async {
        let folder = Folder::new();
        let settings = match database.fresh().await.url {
            Some(url) => Settings::Postgres { url },
            None => {
                copy_template(&folder.0);
                folder.settings()
            }
        };
        test(Db::open(&settings).unwrap()).await;
    });
}

/// Runs the test on an empty database.
fn with_empty(database: Database, test: impl AsyncFnOnce(Settings)) {
    database.block_on(async {
        let folder = Folder::new();
        let settings = match database {
            Database::Sqlite => Settings::Sqlite { path: folder.0.join("new folder").join("tollkeeper.db") },
            Database::Postgres => {
                Settings::Postgres { url: Cluster::shared().unwrap().empty_database().await }
            }
        };
        test(settings).await;
    });
}

/// Runs the test on a database with the schema of an earlier version.
fn with_schema(database: Database, version: i64, test: impl AsyncFnOnce(Db)) {
    with_empty(database, async |settings| {
        let db = Db::open(&settings).unwrap();
        db.migrate_to(version).await.unwrap();
        test(db).await;
    });
}

/// Runs a test on one thread, so that code that blocks the thread stops the whole test.
fn on_one_thread(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Inserts a user. The name must be unique.
async fn insert_user(tx: &mut Tx, id: &str, email: &str, username: &str) -> Result<u64, Error> {
    sql("INSERT INTO users (id, email, email_folded, username, username_folded, password_hash, created_at)
         VALUES ($1, $2, $2, $3, $3, 'x', $4)")
    .bind(id)
    .bind(email)
    .bind(username)
    .bind(1)
    .execute(tx)
    .await
}

async fn count(db: &Db, table: &str) -> i64 {
    let (count,) =
        sql(format!("SELECT COUNT(*) AS n FROM {table}")).one(&mut db.read().await.unwrap()).await.unwrap();
    count
}

#[derive(PartialEq, Debug)]
struct AllTypes {
    id: UserId,
    text: Option<String>,
    none: Option<Time>,
    at: Time,
    yes: bool,
    small: u32,
    big: i64,
    blob: Vec<u8>,
}

impl FromRow for AllTypes {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get("id")?,
            text: row.get("text")?,
            none: row.get("none")?,
            at: row.get("at")?,
            yes: row.get("yes")?,
            small: row.get("small")?,
            big: row.get("big")?,
            blob: row.get("blob")?,
        })
    }
}

#[on_each_database]
fn every_type_of_value_reads_back(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        let bigint = |name: &str| format!("{name} {}", if !db.is_postgres() { "INTEGER" } else { "BIGINT" });
        let blob = if !db.is_postgres() { "BLOB" } else { "BYTEA" };
        let columns = ["at", "yes", "small", "big", "none"].map(bigint).join(", ");
        sql(format!("CREATE TABLE things (id TEXT, text TEXT, {columns}, blob {blob})"))
            .execute(&mut tx)
            .await
            .unwrap();
        let id = UserId::new(Time::from_unix_ms(1_700_000_000_000), &Random::system());
        for (text, big, blob) in [
            (Some("it's $1 and '$2' \u{1f600}\n".to_owned()), i64::MIN, vec![0, 255, 39, 36]),
            (Some(String::new()), i64::MAX, vec![]),
            (None, 0, vec![7; 100_000]),
        ] {
            let thing = AllTypes {
                id,
                text,
                none: None,
                at: Time::from_unix_ms(-5),
                yes: true,
                small: u32::MAX,
                big,
                blob,
            };
            // The parameters are out of order on purpose.
            let inserted = sql("INSERT INTO things (big, id, text, none, at, yes, small, blob)
                 VALUES ($7, $1, $2 || '$9', $3, $4, $5, $6, $8)")
            .bind(thing.id)
            .bind(thing.text.clone())
            .bind(thing.none)
            .bind(thing.at)
            .bind(thing.yes)
            .bind(thing.small)
            .bind(thing.big)
            .bind(thing.blob.clone())
            .execute(&mut tx)
            .await;
            let thing = AllTypes { text: thing.text.map(|text| text + "$9"), ..thing };
            assert_eq!(inserted, Ok(1));
            let back = sql("SELECT * FROM things WHERE big = $1").bind(thing.big).one(&mut tx).await;
            assert_eq!(back, Ok(thing));
        }
        let none: Option<(i64,)> =
            sql("SELECT big FROM things WHERE big = $1").bind(5).optional(&mut tx).await.unwrap();
        assert_eq!(none, None);
        assert_eq!(sql("UPDATE things SET small = 1 WHERE big = 5").execute(&mut tx).await, Ok(0));
        assert_eq!(sql("UPDATE things SET small = 1").execute(&mut tx).await, Ok(3));
        let heavy: Vec<(i64,)> =
            sql("SELECT big FROM things ORDER BY big").heavy().all(&mut tx).await.unwrap();
        assert_eq!(heavy, [(i64::MIN,), (0,), (i64::MAX,)]);
        let returned: Vec<(i64,)> =
            sql("DELETE FROM things WHERE big <> 0 RETURNING small").all(&mut tx).await.unwrap();
        assert_eq!(returned, [(1,), (1,)]);
        tx.commit().await.unwrap();
        let mut tx = db.read().await.unwrap();
        let left: Vec<(i64,)> = sql("SELECT big FROM things").heavy().all(&mut tx).await.unwrap();
        assert_eq!(left, [(0,)]);
        assert!(sql("SELECT big FROM things WHERE big = $1").execute(&mut tx).await.is_err());
    });
}

#[on_each_database]
fn unique_violations_name_their_index(database: Database) {
    with_db(database, async |db| {
        let organization = |id: &'static str, name: &'static str| {
            sql("INSERT INTO organizations (id, name, name_folded, default_role, allow_public_projects, plan,
                     created_by, created_at, updated_at)
                 VALUES ($1, $2, $2, 'member', 0, 'free', 'user_1', 1, 1)")
            .bind(id)
            .bind(name)
        };
        let project = |id: &'static str, name: &'static str| {
            sql("INSERT INTO projects (id, organization_id, name, name_folded, visibility, created_by,
                     created_at, updated_at)
                 VALUES ($1, 'org_1', $2, $2, 'private', 'user_1', 1, 1)")
            .bind(id)
            .bind(name)
        };
        let key = |id: &'static str, name: &'static str| {
            sql("INSERT INTO api_keys (id, organization_id, project_id, name, name_folded, permissions,
                     created_by, created_at, updated_at)
                 VALUES ($1, 'org_1', 'proj_1', $2, $2, '', 'user_1', 1, 1)")
            .bind(id)
            .bind(name)
        };
        let invitation = |id: &'static str, email: &'static str| {
            sql("INSERT INTO invitations (id, organization_id, email, email_folded, role, invited_by, created_at, expires_at)
                 VALUES ($1, 'org_1', $2, $2, 'member', 'user_1', 1, 2)")
            .bind(id)
            .bind(email)
        };
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
        organization("org_1", "a").execute(&mut tx).await.unwrap();
        project("proj_1", "a").execute(&mut tx).await.unwrap();
        key("key_1", "a").execute(&mut tx).await.unwrap();
        invitation("inv_1", "a").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();

        let mut tx = db.write().await.unwrap();
        let email = insert_user(&mut tx, "user_2", "a@x", "b").await;
        assert_eq!(email, Err(Error::Unique(Constraint::UserEmail)));
        let mut tx = next_transaction(&db, tx).await;
        let username = insert_user(&mut tx, "user_2", "b@x", "a").await;
        assert_eq!(username, Err(Error::Unique(Constraint::UserUsername)));
        for (statement, constraint) in [
            (organization("org_2", "a"), Constraint::OrganizationName),
            (project("proj_2", "a"), Constraint::ProjectName),
            (key("key_2", "a"), Constraint::ApiKeyName),
            (invitation("inv_2", "a"), Constraint::OpenInvitation),
        ] {
            tx = next_transaction(&db, tx).await;
            assert_eq!(statement.execute(&mut tx).await, Err(Error::Unique(constraint)));
        }
        tx = next_transaction(&db, tx).await;
        let id = insert_user(&mut tx, "user_1", "c@x", "c").await;
        assert!(matches!(id, Err(Error::Unique(Constraint::Other(_)))), "{id:?}");
        tx = next_transaction(&db, tx).await;
        let orphan = sql("INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
                          VALUES ('proj_none', 'user_1', 'viewer', 1, 1)");
        let orphan = orphan.execute(&mut tx).await.unwrap_err();
        if db.is_postgres() {
            assert_eq!(orphan, Error::Missing(Reference::Project));
            tx = next_transaction(&db, tx).await;
            let orphan =
                sql("INSERT INTO projects (id, organization_id, name, name_folded, visibility, created_by,
                                  created_at, updated_at)
                              VALUES ('proj_9', 'org_none', 'x', 'x', 'private', 'user_1', 1, 1)");
            let orphan = orphan.execute(&mut tx).await;
            assert_eq!(orphan, Err(Error::Missing(Reference::Organization)));
        } else {
            // SQLite doesn't name the index. It has only one writer, which checks the reference beforehand.
            assert!(matches!(orphan, Error::Internal(_)), "{orphan:?}");
        }
    });
}

/// Drops a transaction, and begins the next one.
async fn next_transaction(db: &Db, tx: Tx) -> Tx {
    drop(tx);
    db.write().await.unwrap()
}

#[on_each_database]
fn uncommitted_writes_are_rolled_back(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
        drop(tx);
        for heavy in [false, true] {
            let work = async {
                let mut tx = db.write().await.unwrap();
                insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
                let slow = sql(slow_insert(&db));
                if heavy { slow.heavy() } else { slow }.execute(&mut tx).await.unwrap();
                std::future::pending::<()>().await;
            };
            let canceled = tokio::time::timeout(Duration::from_millis(60), work).await;
            assert!(canceled.is_err());
        }
        // More transactions are canceled than the pool has connections, each at a different time.
        for number in 0..40 {
            let work = async {
                let mut tx = db.write().await?;
                insert_user(&mut tx, "user_1", "a@x", "a").await?;
                std::future::pending::<Result<(), Error>>().await
            };
            let _ = tokio::time::timeout(Duration::from_micros(number * 50), work).await;
        }
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count(&db, "users").await, 1);
    });
}

/// Returns an insert that runs for a long time in one statement.
fn slow_insert(db: &Db) -> &'static str {
    if db.is_postgres() {
        "INSERT INTO signing_keys (kid, public_key, sealed_private_key, created_at)
         SELECT CAST(i AS TEXT), '', '', i FROM generate_series(1, 200000) AS n(i)"
    } else {
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
         INSERT INTO signing_keys (kid, public_key, sealed_private_key, created_at)
         SELECT CAST(i AS TEXT), x'00', x'00', i FROM n"
    }
}

#[on_each_database]
fn transaction_fails_after_an_error(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
        assert!(insert_user(&mut tx, "user_2", "a@x", "b").await.is_err());
        let later = insert_user(&mut tx, "user_3", "c@x", "c").await;
        assert!(matches!(later, Err(Error::Internal(_))), "{later:?}");
        assert!(sql("SELECT 1").execute(&mut tx).await.is_err());
        assert!(matches!(tx.commit().await, Err(Error::Internal(_))));
        assert_eq!(count(&db, "users").await, 0);
        // A canceled statement also counts as failed.
        let mut tx = db.write().await.unwrap();
        let slow = sql(slow_insert(&db)).heavy().execute(&mut tx);
        assert!(tokio::time::timeout(Duration::from_millis(1), slow).await.is_err());
        assert!(tx.commit().await.is_err());
        assert_eq!(count(&db, "signing_keys").await, 0);
    });
}

#[on_each_database]
fn read_handle_refuses_writes(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.read().await.unwrap();
        for _ in 0..2 {
            let written = insert_user(&mut tx, "user_1", "a@x", "a").await;
            assert!(matches!(written, Err(Error::Internal(_))), "{written:?}");
            let heavy = sql("DELETE FROM users RETURNING id").heavy().all::<(String,)>(&mut tx).await;
            assert!(matches!(heavy, Err(Error::Internal(_))), "{heavy:?}");
        }
        // This handle isn't a transaction, so it still works and sees later commits.
        let mut write = db.write().await.unwrap();
        insert_user(&mut write, "user_1", "a@x", "a").await.unwrap();
        let before: (i64,) = sql("SELECT COUNT(*) FROM users").one(&mut tx).await.unwrap();
        write.commit().await.unwrap();
        let after: (i64,) = sql("SELECT COUNT(*) FROM users").one(&mut tx).await.unwrap();
        assert_eq!((before, after), ((0,), (1,)));
        tx.commit().await.unwrap();
    });
}

#[on_each_database]
fn ids_are_in_byte_order(database: Database) {
    with_db(database, async |db| {
        let mut tx = db.write().await.unwrap();
        for (number, name) in ["b", "A", "a", "B", "_", "\u{e4}", "aa"].iter().enumerate() {
            insert_user(&mut tx, &format!("user_{name}"), &number.to_string(), name).await.unwrap();
        }
        for column in ["id", "username_folded"] {
            let statement = format!("SELECT username FROM users ORDER BY {column}");
            let sorted: Vec<(String,)> = sql(statement).all(&mut tx).await.unwrap();
            let sorted: Vec<&str> = sorted.iter().map(|(name,)| name.as_str()).collect();
            assert_eq!(sorted, ["A", "B", "_", "a", "aa", "b", "\u{e4}"], "{column}");
        }
    });
}

#[on_each_database]
fn one_of_many_inserts_wins_a_name(database: Database) {
    with_db(database, async |db| {
        let start = Arc::new(tokio::sync::Barrier::new(32));
        let tasks = (0..32).map(|number| {
            let (db, start) = (db.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let mut tx = db.write().await?;
                insert_user(&mut tx, &format!("user_{number}"), &format!("{number}@x"), "same").await?;
                tx.commit().await
            })
        });
        let mut winners = 0;
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                Ok(()) => winners += 1,
                Err(error) => assert_eq!(error, Error::Unique(Constraint::UserUsername)),
            }
        }
        assert_eq!((winners, count(&db, "users").await), (1, 1));
    });
}

#[on_each_database]
fn concurrent_reads_and_writes_succeed(database: Database) {
    with_db(database, async |db| {
        let tasks = (0..64).map(|number| {
            let db = db.clone();
            tokio::spawn(async move {
                let name = number.to_string();
                let mut tx = db.write().await?;
                insert_user(&mut tx, &name, &name, &name).await?;
                tx.commit().await?;
                let mut tx = db.read().await?;
                for _ in 0..20 {
                    let mine = sql("SELECT username FROM users WHERE id = $1").bind(name.as_str());
                    let mine: (String,) =
                        if number % 4 == 0 { mine.heavy() } else { mine }.one(&mut tx).await?;
                    assert_eq!(mine.0, name);
                }
                Ok::<_, Error>(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap().unwrap();
        }
        assert_eq!(count(&db, "users").await, 64);
    });
}

#[on_each_database]
fn statements_are_counted(database: Database) {
    with_db(database, async |db| {
        let before = db.statement_count();
        db.ping().await.unwrap();
        count(&db.clone(), "users").await;
        let mut tx = db.write().await.unwrap();
        insert_user(&mut tx, "user_1", "a@x", "a").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(db.statement_count() - before, 3);
    });
}

#[test]
fn settings_hide_the_password() {
    let settings = Settings::Postgres { url: "postgres://me:hunter2@host/db".to_owned() };
    assert!(!format!("{settings:?}").contains("hunter2"));
    for url in ["postgres://me:hunter2@host:port/db", "host=x pass word=hunter2", "hunter2"] {
        let error = Db::open(&Settings::Postgres { url: url.to_owned() }).err().unwrap();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

/// Handlers run on many threads, so their futures must be `Send`.
#[test]
fn futures_are_send() {
    fn send<T: Send>(_: T) {}
    let db = Db::open(&Settings::Sqlite { path: Path::new("nowhere").to_owned() }).unwrap();
    send(async move {
        db.migrate().await.unwrap();
        let mut tx = db.write().await.unwrap();
        sql("SELECT 1").bind(Value::Null).heavy().execute(&mut tx).await.unwrap();
        let _: Vec<(i64,)> = sql("SELECT 1").all(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        db.ping().await
    });
}
