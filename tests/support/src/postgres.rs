//! A temporary PostgreSQL server that all tests of a process share.
//!
//! The server uses a temporary folder, in memory if that has enough room, and listens on a Unix socket in
//! this folder. A small shell script controls the server and reads commands from a pipe. However this process
//! ends, the pipe closes. The script then stops the server and removes the folder. Commits reach the
//! operating system but not the disk. They survive when the server is stopped, which the fault tests rely on.
//!
//! A separate cluster can also listen on a loopback port, use TLS, and be cloned into a standby that follows
//! it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};
use tollkeeper::db::{Db, Settings};

use super::faketime::FakeClock;
use super::proxy::is_installed;
use super::world::temporary_folder;

/// The script that controls a server. The comment at its top describes its parameters.
const KEEPER: &str = include_str!("postgres/keeper.sh");

/// The database that new databases are copied from.
const TEMPLATE: &str = "tollkeeper_template";

/// The options of standbys and of primaries with standbys.
const REPLICATION_OPTIONS: &str = "-c wal_level=replica -c max_wal_senders=10";

fn listening(port: u16) -> String {
    format!("-c listen_addresses=127.0.0.1 -c port={port}")
}

/// Returns a port that no other test gets. It is below the range of client ports, because the system could
/// assign a client port to another program while the server is stopped.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 200).unwrap() * 100;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running server.
pub struct Cluster {
    folder: PathBuf,
    /// The TCP port, or 0 if the server listens only on its socket.
    port: u16,
    /// Whether the folder is a separate disk that only the processes of this cluster can see.
    hidden: bool,
    keeper: Mutex<Keeper>,
    /// The pooler in front of every database, if any (see [`through_poolers`]).
    pooler: OnceLock<Pooler>,
    /// The clause that copies a database from the template, once the template exists. Several databases can
    /// be copied at the same time.
    copy: OnceCell<String>,
    /// The databases of finished tests. They are dropped before new ones are created, because each uses about
    /// 13 MB, and a run creates more than a thousand.
    unused: Unused,
    /// The administrator's connections that run no statement.
    idle: Arc<Mutex<Vec<Client>>>,
}

type Unused = Arc<Mutex<Vec<String>>>;

/// A database of the test that runs on this thread.
struct TestDatabase {
    name: String,
    unused: Unused,
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.unused.lock().unwrap().push(std::mem::take(&mut self.name));
    }
}

thread_local! {
    /// The databases of this thread's test. The test harness runs each test on its own thread.
    static DATABASES: RefCell<Vec<TestDatabase>> = const { RefCell::new(Vec::new()) };
}

struct Keeper {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Cluster {
    /// Returns the cluster that the tests of this process share, or `None` if PostgreSQL isn't installed.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(Self::private).as_ref()
    }

    /// Starts a separate cluster, for tests that stop it.
    pub fn private() -> Option<Self> {
        Self::with(0, "", "", "", None, "")
    }

    /// Starts a separate cluster that uses fsync.
    pub fn syncing() -> Option<Self> {
        Self::with(0, "-c fsync=on", "", "", None, "")
    }

    /// Starts a separate cluster on a fake clock.
    pub fn by_clock(clock: &FakeClock) -> Option<Self> {
        let words = clock.environment().map(|(name, value)| format!("{name}={value}"));
        Self::with(0, "", "", "", None, &format!("env {}", words.join(" ")))
    }

    /// Starts a separate cluster that also listens on a loopback port.
    pub fn on_loopback() -> Option<Self> {
        let port = free_port();
        Self::with(port, &listening(port), "", "", None, "")
    }

    /// Like [`Self::on_loopback`], with replication to standbys.
    pub fn primary() -> Option<Self> {
        let port = free_port();
        Self::with(port, &format!("{} {REPLICATION_OPTIONS}", listening(port)), "", "", None, "")
    }

    /// Like [`Self::on_loopback`], with TLS. Uses `server.pem` and `server.key` in this folder.
    pub fn under_tls(certificates: &Path) -> Option<Self> {
        let port = free_port();
        let options = format!(
            "{} -c ssl=on -c ssl_cert_file=../server.pem -c ssl_key_file=../server.key",
            listening(port)
        );
        Self::with(port, &options, "", certificates.to_str().unwrap(), None, "")
    }

    /// Starts a cluster on a separate disk of this many MiB. Requires root, and `private_mounts`.
    pub fn on_a_small_disk(size_mib: u32) -> Option<Self> {
        let port = free_port();
        Self::with(port, &listening(port), "", "", Some(size_mib), "")
    }

    /// Starts a standby of this cluster, on another port.
    pub fn standby(&self) -> Self {
        let port = free_port();
        let options = format!("{} {REPLICATION_OPTIONS}", listening(port));
        Self::with(port, &options, &self.address(), "", None, "").expect("a primary exists")
    }

    fn with(
        port: u16,
        options: &str,
        primary: &str,
        certificates: &str,
        disk_mib: Option<u32>,
        through: &str,
    ) -> Option<Self> {
        let Some(binaries) = binaries() else {
            skipped();
            return None;
        };
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The name is short, because the path of a socket is limited to about 100 bytes.
        let name = format!("tollkeeper-pg-{}-{number}", std::process::id());
        let folder = temporary_folder().join(name);
        let disk = disk_mib.map(|size| size.to_string()).unwrap_or_default();
        let wrapper: &[&str] = if disk.is_empty() { &["sh"] } else { &["unshare", "-m", "sh"] };
        let mut process = Command::new(wrapper[0])
            .args(&wrapper[1..])
            .args(["-c", KEEPER, "keeper"])
            .args([&binaries, &folder])
            .args([options, primary, certificates, &disk, through])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in the terminal of the tests must not reach the keeper, which has to clean up.
            .process_group(0)
            .spawn()
            .unwrap();
        let commands = process.stdin.take();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        expect_done(&mut answers, "initdb");
        let keeper = Mutex::new(Keeper { process, commands, answers });
        let hidden = disk_mib.is_some();
        let (pooler, copy, unused) = (OnceLock::new(), OnceCell::new(), Unused::default());
        let idle = Arc::default();
        let cluster = Self { folder, port, hidden, keeper, pooler, copy, unused, idle };
        cluster.start();
        Some(cluster)
    }

    /// Starts the server again, at the same address.
    pub fn start(&self) {
        self.order("start");
    }

    /// Stops the server immediately, like a crash.
    pub fn stop(&self) {
        self.order("stop");
    }

    /// Kills all processes of the server with SIGKILL. Data that was written to the operating system is still
    /// available at the next start.
    pub fn kill(&self) {
        self.order("murder");
    }

    /// Starts the server again if it has stopped.
    pub fn revive(&self) {
        self.order("revive");
    }

    /// Returns the path of the cluster's folder through `/proc`, where it is visible as to the cluster's own
    /// processes.
    pub fn disk(&self) -> PathBuf {
        let keeper = self.keeper.lock().unwrap().process.id().to_string();
        Path::new("/proc").join(keeper).join("root").join(self.folder.strip_prefix("/").unwrap())
    }

    /// Replaces the data of this stopped cluster with a copy of `primary`, and starts it as a standby.
    pub fn follow(&self, primary: &Self) {
        self.order(&format!("follow {}", primary.address()));
        self.start();
    }

    /// Returns the options with which PostgreSQL's client programs connect to this server.
    fn address(&self) -> String {
        format!("-h {} -p {}", self.folder.display(), if self.port == 0 { 5432 } else { self.port })
    }

    /// Returns the loopback port. Panics if the server listens on its socket only.
    pub fn port(&self) -> u16 {
        assert_ne!(self.port, 0, "it listens on its socket only");
        self.port
    }

    /// Starts a pooler in front of this server, with at most this many sessions for each database. Returns
    /// `None` if PgBouncer isn't installed.
    pub fn pooler(&self, pool_mode: &'static str, sessions: u32) -> Option<Pooler> {
        static PORT: AtomicU64 = AtomicU64::new(6432);
        if !is_installed("pgbouncer", "pgbouncer", "PostgreSQL behind a pooler") {
            return None;
        }
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let server = if self.port == 0 { 5432 } else { self.port };
        self.order(&format!("pool {port} {pool_mode} {sessions} {server}"));
        let host = self.folder.to_str().unwrap().replace('/', "%2F");
        Some(Pooler { address: format!("{host}:{port}"), pool_mode })
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", if self.port == 0 { 5432 } else { self.port }))
    }

    /// Replaces the allowed connections with these lines of `pg_hba.conf`.
    pub async fn set_allowed_connections(&self, lines: &str) {
        std::fs::write(self.folder.join("data/pg_hba.conf"), format!("local all all trust\n{lines}\n"))
            .unwrap();
        self.admin("SELECT pg_reload_conf()").await;
    }

    /// Makes commits wait for a standby. Returns when a standby has caught up.
    pub async fn wait_for_a_standby(&self) {
        self.admin("ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.admin("SELECT pg_reload_conf()").await;
        let together =
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'";
        for _ in 0..6_000 {
            if self.ask(together).await == 1 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("no standby follows");
    }

    /// Returns the number that a query on the database `postgres` selects.
    pub async fn ask(&self, question: &str) -> i64 {
        let (client, connection) = tokio_postgres::connect(&self.url("postgres"), NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let number = client.query_one(question, &[]).await.unwrap().get(0);
        drop(client);
        let _ = connection.await;
        number
    }

    /// Creates a database with the current schema, and returns its URL.
    pub async fn new_database(&self) -> String {
        let copy = self.copy.get_or_init(|| self.make_template()).await;
        self.create(copy).await
    }

    /// Creates the template database, and returns the clause that copies it. Copying files is faster than
    /// copying through the write-ahead log, the default since PostgreSQL 15.
    async fn make_template(&self) -> String {
        self.admin(&format!("CREATE DATABASE {TEMPLATE}")).await;
        let db = Db::open(&Settings::Postgres { url: self.url(TEMPLATE) }).unwrap();
        db.migrate().await.unwrap();
        let version = self.ask("SELECT current_setting('server_version_num')::bigint").await;
        let strategy = if version >= 150_000 { " STRATEGY FILE_COPY" } else { "" };
        format!("TEMPLATE {TEMPLATE}{strategy}")
    }

    /// Creates a database without a schema, and returns its URL.
    pub async fn empty_database(&self) -> String {
        self.create("").await
    }

    async fn create(&self, from: &str) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        // Drops only two, so that a test that waits for its database doesn't wait for all of them.
        for _ in 0..2 {
            let unused = self.unused.lock().unwrap().pop();
            let Some(database) = unused else { break };
            self.admin(&format!("DROP DATABASE {database} WITH (FORCE)")).await;
        }
        self.admin(&format!("CREATE DATABASE {name} {from}")).await;
        let database = TestDatabase { name: name.clone(), unused: self.unused.clone() };
        DATABASES.with_borrow_mut(|databases| databases.push(database));
        let url = self.url(&name);
        let Some(sessions) = through_poolers() else { return url };
        let pooler =
            self.pooler.get_or_init(|| self.pooler("transaction", sessions).expect("PgBouncer is here"));
        pooler.url(&url)
    }

    /// Runs a statement as the administrator.
    pub async fn admin(&self, statement: &str) {
        let (idle, url, statement) = (self.idle.clone(), self.url("postgres"), statement.to_owned());
        administration().spawn(async move { administrate(&idle, &url, &statement).await }).await.unwrap();
    }

    fn url(&self, database: &str) -> String {
        if self.hidden {
            return format!("postgres://postgres@127.0.0.1:{}/{database}", self.port);
        }
        let host = self.folder.to_str().unwrap().replace('/', "%2F");
        let port = if self.port == 0 { String::new() } else { format!(":{}", self.port) };
        format!("postgres://postgres@{host}{port}/{database}")
    }

    fn order(&self, command: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        writeln!(keeper.commands.as_mut().unwrap(), "{command}").unwrap();
        let log = self.folder.join("log");
        expect_done(&mut keeper.answers, &format!("{command}, see {}", log.display()));
    }
}

/// Returns the runtime of the administrator's connections. They outlive the runtimes of the tests, because a
/// new connection costs as much as most statements.
fn administration() -> &'static Runtime {
    static ADMINISTRATION: OnceLock<Runtime> = OnceLock::new();
    ADMINISTRATION.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    })
}

/// Runs a statement on an idle connection, or on a new one if all are busy.
async fn administrate(idle: &Mutex<Vec<Client>>, url: &str, statement: &str) {
    let mut attempts = 0;
    loop {
        let known = idle.lock().unwrap().pop().filter(|client| !client.is_closed());
        let client = match known {
            Some(client) => client,
            None => {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
                tokio::spawn(connection);
                client
            }
        };
        let Err(error) = client.batch_execute(statement).await else {
            return idle.lock().unwrap().push(client);
        };
        // The server was stopped after the last statement. The error has a code, or is only a closed
        // connection.
        if error.code().is_none_or(|code| code.code().starts_with("57P")) {
            continue;
        }
        // The template is in use until the server has noticed that the connection to it is closed.
        attempts += 1;
        assert!(attempts < 200 && error.code().is_some_and(|code| code.code() == "55006"), "{error:?}");
        idle.lock().unwrap().push(client);
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
}

/// A running PgBouncer. It ends when its cluster ends.
pub struct Pooler {
    address: String,
    pool_mode: &'static str,
}

impl Pooler {
    /// Returns the URL, through the pooler, of the database in `url`.
    pub fn url(&self, url: &str) -> String {
        format!("{}?pool_mode={}", self.plain_url(url), self.pool_mode)
    }

    /// Like [`Self::url`], without the pool mode, as other clients of the pooler use it.
    pub fn plain_url(&self, url: &str) -> String {
        let (_, database) = url.rsplit_once('/').unwrap();
        format!("postgres://postgres@{}/{database}", self.address)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Ok(keeper) = self.keeper.get_mut() {
            drop(keeper.commands.take());
            let _ = keeper.process.wait();
        }
    }
}

/// Returns the number of sessions for each database if `TOLLKEEPER_TEST_POOLER` puts a pooler in front of
/// every database. The pooler shares sessions by transaction, and tests run on PostgreSQL only.
pub fn through_poolers() -> Option<u32> {
    std::env::var("TOLLKEEPER_TEST_POOLER").ok().map(|sessions| sessions.parse().unwrap())
}

fn expect_done(answers: &mut BufReader<ChildStdout>, what: &str) {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "done", "PostgreSQL: {what}");
}

/// Returns the folder with `initdb` and `postgres`: from PATH, or of the newest version that Debian or a
/// derivative has installed. `TOLLKEEPER_TEST_POSTGRES=none` disables PostgreSQL where SQLite is enough.
/// `tests/mutants/run` uses this, because it runs the tests once for each mutant.
pub fn binaries() -> Option<PathBuf> {
    if std::env::var_os("TOLLKEEPER_TEST_POSTGRES").is_some_and(|word| word == "none") {
        return None;
    }
    let complete = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(folder) = std::env::split_paths(&path).find(complete) {
        // If the binary is a symbolic link, the files that PostgreSQL needs are next to the target.
        let real = folder.join("postgres").canonicalize().ok()?;
        return real.parent().map(Path::to_owned);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, folder)| complete(folder))
        .collect();
    found.sort();
    found.pop().map(|(_, folder)| folder)
}

fn skipped() {
    let required = std::env::var("TOLLKEEPER_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.contains("postgres"),
        "TOLLKEEPER_TEST_REQUIRE asks for PostgreSQL, but it isn't installed"
    );
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // `eprintln!` would be captured by the test harness.
        let _ = writeln!(
            std::io::stderr(),
            "\nPostgreSQL tests are SKIPPED: no initdb and postgres in PATH or /usr/lib/postgresql. \
             Install the package `postgresql` to run them.\n"
        );
    });
}
