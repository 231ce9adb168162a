//! Database faults while the service runs, and recovery without a restart.

use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use tollkeeper::db::{Db, Error, MigrateError, Settings, Tx, sql};

use super::{Folder, count, insert_user, on_one_thread};
use support::postgres::Cluster;
use support::{Database, on_postgres};

async fn add(db: &Db, name: &str) -> Result<(), Error> {
    let mut tx = db.write().await?;
    insert_user(&mut tx, name, name, name).await?;
    tx.commit().await
}

/// Runs on one thread, which the cluster's `stop` and `start` block. So the pool still considers connections
/// alive that have died in the meantime.
#[on_postgres]
fn pool_recovers_after_postgres_restarts(_: Database) {
    on_one_thread(async {
        let Some(cluster) = Cluster::private() else { return };
        let db = Db::open(&Settings::Postgres { url: cluster.new_database().await }).unwrap();
        add(&db, "first").await.unwrap();
        let mut open = use_all_connections(&db).await;
        let kept = open.pop();
        drop(open);
        tokio::time::sleep(Duration::from_millis(200)).await;

        cluster.stop();
        for _ in 0..8 {
            let start = Instant::now();
            assert!(matches!(db.ping().await, Err(Error::Unavailable(_))));
            let written = add(&db, "while down").await;
            assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
            assert!(start.elapsed() < Duration::from_secs(2));
        }
        let mut kept = kept.unwrap();
        let in_flight = insert_user(&mut kept, "kept", "kept", "kept").await;
        assert!(matches!(in_flight, Err(Error::Unavailable(_))), "{in_flight:?}");
        drop(kept);

        cluster.start();
        for number in 0..20 {
            db.ping().await.unwrap();
            add(&db, &format!("again {number}")).await.unwrap();
        }
        assert_eq!(count(&db, "users").await, 21);

        // PostgreSQL restarts between two statements. No statement is running, so none fails.
        for number in 0..3 {
            drop(use_all_connections(&db).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
            cluster.stop();
            cluster.start();
            if number % 2 == 0 {
                add(&db, &format!("restart {number}")).await.unwrap();
                db.ping().await.unwrap();
            } else {
                db.ping().await.unwrap();
                add(&db, &format!("restart {number}")).await.unwrap();
            }
        }
        assert_eq!(count(&db, "users").await, 24);
    });
}

/// Opens the shared connections with reads and the pool's connections with transactions. Returns the
/// transactions.
async fn use_all_connections(db: &Db) -> Vec<Tx> {
    let mut open = Vec::new();
    for _ in 0..16 {
        db.ping().await.unwrap();
        open.push(db.write().await.unwrap());
    }
    open
}

#[tokio::test]
async fn missing_postgres_is_unavailable() {
    for url in ["postgres://nobody@127.0.0.1:1/none", "postgres://nobody@%2Fnowhere/none"] {
        let db = Db::open(&Settings::Postgres { url: url.to_owned() }).unwrap();
        assert!(matches!(db.ping().await, Err(Error::Unavailable(_))));
        assert!(matches!(db.write().await.err(), Some(Error::Unavailable(_))));
        assert!(matches!(db.migrate().await, Err(MigrateError::Database(Error::Unavailable(_)))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_waits_for_another_process() {
    let folder = Folder::new();
    let db = folder.migrated().await;
    add(&db, "first").await.unwrap();
    let other = rusqlite::Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM users").unwrap();
    let start = Instant::now();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.execute_batch("ROLLBACK").unwrap();
    });
    let writing = tokio::spawn({
        let db = db.clone();
        async move { add(&db, "second").await }
    });
    // Reads still work, and don't see uncommitted writes.
    while start.elapsed() < Duration::from_millis(200) {
        assert_eq!(count(&db, "users").await, 1);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    writing.await.unwrap().unwrap();
    let waited = start.elapsed();
    assert!((Duration::from_millis(290)..Duration::from_secs(2)).contains(&waited), "{waited:?}");
    release.join().unwrap();
    assert_eq!(count(&db, "users").await, 2);
}

#[tokio::test]
async fn sqlite_file_with_a_newer_format_is_read_only() {
    let folder = Folder::new();
    let db = folder.migrated().await;
    add(&db, "first").await.unwrap();
    drop(db);
    // Only newer versions of SQLite may write a file with this format version. This also refuses writes by
    // root.
    let write_version = |version: u8| {
        let mut file = std::fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
        file.seek(SeekFrom::Start(18)).unwrap();
        file.write_all(&[version]).unwrap();
    };
    write_version(3);
    let db = Db::open(&folder.settings()).unwrap();
    for _ in 0..2 {
        let written = add(&db, "second").await;
        assert!(matches!(written, Err(Error::ReadOnly(_))), "{written:?}");
    }
    assert_eq!(count(&db, "users").await, 1);
    write_version(2);
    add(&db, "second").await.unwrap();
    assert_eq!(count(&db, "users").await, 2);
}

#[cfg(unix)]
#[tokio::test]
async fn sqlite_without_permission_is_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    drop(folder.migrated().await);
    let allow = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&folder.file(), 0o400);
    allow(&folder.0, 0o500);
    // Root ignores file permissions.
    let is_root = std::fs::write(folder.0.join("probe"), "").is_ok();
    let db = Db::open(&folder.settings()).unwrap();
    let written = add(&db, "first").await;
    allow(&folder.0, 0o700);
    allow(&folder.file(), 0o600);
    assert!(is_root || matches!(written, Err(Error::ReadOnly(_))), "{written:?}");
    add(&db, "second").await.unwrap();
}

#[tokio::test]
async fn full_sqlite_database_keeps_its_data() {
    let folder = Folder::new();
    let db = folder.migrated().await;
    add(&db, "first").await.unwrap();
    // The pool has a single writer connection, so this affects later transactions like a full disk.
    let limit = async |pages: &str| {
        let mut tx = db.write().await.unwrap();
        sql(format!("PRAGMA max_page_count = {pages}")).execute(&mut tx).await.unwrap();
    };
    let fill = async || {
        let mut tx = db.write().await?;
        insert_user(&mut tx, "second", "second", "second").await?;
        for number in 0..1000 {
            sql("INSERT INTO signing_keys (kid, public_key, sealed_private_key, created_at)
                 VALUES ($1, $2, $2, 1)")
            .bind(number.to_string())
            .bind(vec![7; 5000])
            .execute(&mut tx)
            .await?;
        }
        tx.commit().await
    };
    limit("100").await;
    for _ in 0..2 {
        let full = fill().await;
        assert!(matches!(full, Err(Error::StorageFull(_))), "{full:?}");
        assert_eq!((count(&db, "users").await, count(&db, "signing_keys").await), (1, 0));
    }
    limit("100000").await;
    fill().await.unwrap();
    assert_eq!((count(&db, "users").await, count(&db, "signing_keys").await), (2, 1000));
}

#[tokio::test]
async fn sqlite_recovers_from_a_missing_and_a_damaged_file() {
    let folder = Folder::new();
    let db = Db::open(&folder.settings()).unwrap();
    for _ in 0..2 {
        assert!(matches!(db.ping().await, Err(Error::Unavailable(_))));
        assert!(matches!(db.write().await.err(), Some(Error::Unavailable(_))));
    }
    assert!(!folder.file().exists(), "only a migration creates the file");
    std::fs::write(folder.file(), "not a database".repeat(1000)).unwrap();
    assert!(matches!(db.ping().await, Err(Error::Internal(_))));
    assert!(matches!(db.write().await.err(), Some(Error::Internal(_))));
    assert!(matches!(db.migrate().await, Err(MigrateError::Database(Error::Internal(_)))));
    std::fs::remove_file(folder.file()).unwrap();
    db.migrate().await.unwrap();
    db.ping().await.unwrap();
    add(&db, "first").await.unwrap();
    assert_eq!(count(&db, "users").await, 1);
}

#[cfg(unix)]
#[tokio::test]
async fn sqlite_follows_a_restored_file() {
    let (folder, backup) = (Folder::new(), Folder::new());
    let db = folder.migrated().await;
    add(&db, "old").await.unwrap();
    let restored = backup.migrated().await;
    for name in ["a", "b", "c"] {
        add(&restored, name).await.unwrap();
    }
    drop(restored);
    assert_eq!(count(&db, "users").await, 1);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.0.join(format!("tollkeeper.db{suffix}")));
    }
    let lost = db.ping().await;
    assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
    std::fs::copy(backup.file(), folder.file()).unwrap();
    db.ping().await.unwrap();
    add(&db, "d").await.unwrap();
    assert_eq!(count(&db, "users").await, 4);
}

#[cfg(unix)]
#[tokio::test]
async fn sqlite_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let db = folder.migrated().await;
    add(&db, "first").await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = folder.0.join(format!("tollkeeper.db{suffix}"));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}
