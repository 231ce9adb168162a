//! TLS to PostgreSQL, with certificates that the test creates: accepted and refused connections.

use std::path::Path;
use std::process::Command;

use tollkeeper::db::{Db, Error, MigrateError, Settings, Tx, sql};

use super::database_of;
use support::postgres::Cluster;
use support::process::Start;
use support::python;
use support::smtp::make_certificates;
use support::world::Folder;

/// Starts a PostgreSQL with a certificate for `localhost` and `127.0.0.1`. Returns it with the folder of its
/// certificate authority.
fn scene() -> Option<(Cluster, Folder)> {
    if Command::new("openssl").arg("version").output().is_err() {
        python::skip("TLS to PostgreSQL", "`openssl` is not installed");
        return None;
    }
    let folder = Folder::new();
    make_certificates(&folder.0);
    Some((Cluster::under_tls(&folder.0)?, folder))
}

/// Allows only TLS with a password.
const STRICT: &str = "hostssl all all 127.0.0.1/32 scram-sha-256";

fn url(cluster: &Cluster, host: &str, database: &str, query: &str) -> String {
    format!("postgres://postgres:hunter2@{host}:{}/{database}?{query}", cluster.port())
}

fn open(url: &str) -> Result<Db, Error> {
    Db::open(&Settings::Postgres { url: url.to_owned() })
}

/// Returns the logged reason why no connection can be opened.
async fn refusal(url: &str) -> String {
    let db = open(url).unwrap();
    let Err(Error::Unavailable(read)) = db.ping().await else { panic!("{url}: read") };
    let Err(Error::Unavailable(_)) = db.write().await.map(drop) else { panic!("{url}: written") };
    let Err(MigrateError::Database(Error::Unavailable(migrated))) = db.migrate().await else {
        panic!("{url}: migrated")
    };
    assert_eq!(read, migrated);
    assert!(!read.contains("hunter2"), "{read}");
    read
}

/// Uses connections of every kind. Returns their number, and how many of them use TLS.
async fn use_all_kinds(db: &Db) -> (i64, i64) {
    db.migrate().await.unwrap();
    let mut tx: Tx = db.write().await.unwrap();
    sql("DELETE FROM changes").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    sql("SELECT CAST(1 AS BIGINT) AS n").heavy().one::<(i64,)>(&mut db.read().await.unwrap()).await.unwrap();
    let count = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE ssl) AS tls FROM pg_stat_ssl \
                 JOIN pg_stat_activity USING (pid) WHERE application_name = 'tollkeeper' AND backend_type = 'client backend'";
    sql(count).one(&mut db.read().await.unwrap()).await.unwrap()
}

/// The number of kinds: pool, point reads, and heavy reads.
const KINDS: i64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_every_kind_use_tls() {
    let Some((cluster, folder)) = scene() else { return };
    cluster.admin("ALTER USER postgres PASSWORD 'hunter2'").await;
    cluster.set_allowed_connections(STRICT).await;
    let ca = folder.0.join("ca.pem");
    let ca = ca.to_str().unwrap();
    let accepted = [
        ("localhost", format!("sslmode=verify-full&sslrootcert={ca}")),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={}", ca.replace('/', "%2F"))),
        // `verify-ca` accepts another host name.
        ("elsewhere.example", format!("hostaddr=127.0.0.1&sslmode=verify-ca&sslrootcert={ca}")),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", "sslmode=require&channel_binding=require".to_owned()),
        ("127.0.0.1", "sslmode=prefer".to_owned()),
        ("127.0.0.1", String::new()),
    ];
    for (host, query) in accepted {
        let database = cluster.empty_database().await;
        let db = open(&url(&cluster, host, database_of(&database), &query)).unwrap();
        let (all, under_tls) = use_all_kinds(&db).await;
        assert!(all >= KINDS && under_tls == all, "{query}: {under_tls} of {all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_server_certificate_is_refused() {
    let Some((cluster, folder)) = scene() else { return };
    cluster.admin("ALTER USER postgres PASSWORD 'hunter2'").await;
    cluster.set_allowed_connections(STRICT).await;
    let other = Folder::new();
    make_certificates(&other.0);
    let path = |folder: &Folder| folder.0.join("ca.pem").to_str().unwrap().to_owned();
    let (ca, other) = (path(&folder), path(&other));
    let cases = [
        (
            "localhost",
            format!("sslmode=verify-full&sslrootcert={other}"),
            "no authority in sslrootcert has signed",
        ),
        (
            "localhost",
            format!("sslmode=verify-ca&sslrootcert={other}"),
            "no authority in sslrootcert has signed",
        ),
        // As in libpq, `require` with a root certificate verifies the certificate.
        (
            "localhost",
            format!("sslmode=require&sslrootcert={other}"),
            "no authority in sslrootcert has signed",
        ),
        ("localhost", "sslrootcert=system".to_owned(), "no authority in sslrootcert has signed"),
        (
            "elsewhere.example",
            format!("hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={ca}"),
            "not valid for name \"elsewhere.example\"",
        ),
        ("localhost", "sslmode=disable".to_owned(), "no encryption"),
    ];
    for (host, query, expected) in cases {
        let said = refusal(&url(&cluster, host, "postgres", &query)).await;
        assert!(said.contains(expected) && said.contains(host), "{query}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_without_tls_needs_a_mode_that_allows_it() {
    let Some(plain) = Cluster::on_loopback() else { return };
    for mode in ["sslmode=require", "sslmode=require&channel_binding=require"] {
        let said = refusal(&url(&plain, "127.0.0.1", "postgres", mode)).await;
        assert!(said.contains("server does not support TLS"), "{said}");
    }
    for mode in ["", "sslmode=prefer", "sslmode=disable"] {
        let database = plain.empty_database().await;
        let db = open(&url(&plain, "127.0.0.1", database_of(&database), mode)).unwrap();
        let (all, under_tls) = use_all_kinds(&db).await;
        assert!(all >= KINDS && under_tls == 0, "{mode}: {under_tls} of {all}");
    }
    // The server supports TLS, but accepts only connections without it.
    let Some((cluster, _folder)) = scene() else { return };
    cluster.set_allowed_connections("hostnossl all all 127.0.0.1/32 trust").await;
    let database = cluster.empty_database().await;
    let db = open(&url(&cluster, "127.0.0.1", database_of(&database), "sslmode=prefer")).unwrap();
    let (all, under_tls) = use_all_kinds(&db).await;
    assert!(all >= KINDS && under_tls == 0, "{under_tls} of {all}");
    let said = refusal(&url(&cluster, "127.0.0.1", "postgres", "sslmode=require")).await;
    assert!(said.contains("no pg_hba.conf entry"), "{said}");
}

/// Starts a server that must fail to start. Returns its output.
fn start_is_refused(query: &str) -> String {
    let folder = Folder::new();
    let url = format!("postgres://postgres:hunter2@127.0.0.1:1/none?{query}");
    let ended = Start::new(&folder.0).database(Some(&url)).refused();
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    assert!(!ended.log.contains("hunter2"), "{}", ended.log);
    ended.log
}

#[test]
fn invalid_tls_settings_stop_the_start() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = Path::new(&folder.0).join("missing.pem").to_str().unwrap().to_owned();
    let full = |file: &str| format!("sslmode=verify-full&sslrootcert={file}");
    let cases = [
        ("sslmode=allow".to_owned(), "sslmode must be disable, prefer, require, verify-ca or verify-full"),
        ("sslmode=verify-full".to_owned(), "needs sslrootcert=FILE"),
        ("sslcert=client.pem&sslkey=client.key".to_owned(), "sslcert is not supported"),
        (full(&missing), "it can't be read"),
        (full(&file("empty.pem", "nothing")), "it contains no certificate"),
        (
            full(&file("bad.pem", "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----")),
            "this is not PEM",
        ),
        (
            full(&file("odd.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
            "it contains no usable certificate",
        ),
    ];
    for (query, expected) in cases {
        let said = start_is_refused(&query);
        assert!(said.contains(expected) && said.contains("TOLLKEEPER_DATABASE_URL"), "{query}: {said}");
    }
}
