//! The databases that each test runs on.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::OnceLock;

use tollkeeper::db::{Db, Settings};

use crate::postgres::{Cluster, through_poolers};
use crate::process::Start;
use crate::world::{Folder, World, runtime};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// A new database.
pub struct Fresh {
    /// The name of the kind, for failure messages.
    pub backend: &'static str,
    /// The URL of the database. `None` for SQLite, whose database is a file in the data folder.
    pub url: Option<String>,
}

type Test<'a> = dyn FnOnce(World) -> Pin<Box<dyn Future<Output = ()> + 'a>> + 'a;

impl Database {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// Runs a test in a world with a new database. The settings are pairs of environment variables.
    pub fn run(self, settings: &[(&str, &str)], test: impl AsyncFnOnce(World)) {
        self.run_boxed(settings, Box::new(|world| Box::pin(test(world))));
    }

    /// Not generic, so that it is compiled only once.
    fn run_boxed(self, settings: &[(&str, &str)], test: Box<Test<'_>>) {
        self.block_on(async {
            let world = self.world(settings).await;
            test(world).await;
        });
    }

    /// Runs a test that creates its databases itself, one after the other.
    pub fn block_on(self, test: impl Future<Output = ()>) {
        if self.is_available() {
            runtime().block_on(Box::pin(test) as Pin<Box<dyn Future<Output = ()> + '_>>);
        }
    }

    /// Creates a world with a new database.
    ///
    /// # Panics
    /// Panics if the database isn't available.
    pub async fn world(self, settings: &[(&str, &str)]) -> World {
        let Fresh { backend, url } = self.fresh().await;
        World::new(backend, url, settings).await
    }

    /// Returns the first number for SQLite, and the second for PostgreSQL, where calls take longer.
    pub const fn choose(self, on_sqlite: u64, on_postgres: u64) -> u64 {
        match self {
            Self::Sqlite => on_sqlite,
            Self::Postgres => on_postgres,
        }
    }

    /// Runs a test with the URL of a new database without a schema, and with a folder. For SQLite the URL is
    /// `None`, because the database is a file in the folder.
    pub fn run_empty(self, test: impl FnOnce(Option<&str>, &Folder)) {
        if !self.is_available() {
            return;
        }
        let url = match self {
            Self::Sqlite => None,
            Self::Postgres => Cluster::shared().map(|cluster| runtime().block_on(cluster.empty_database())),
        };
        test(url.as_deref(), &Folder::new());
    }

    /// Like [`Self::run_empty`], with the current schema in the database. For tests that run servers as
    /// processes.
    pub fn run_processes(self, test: impl FnOnce(Option<&str>, &Folder)) {
        if !self.is_available() {
            return;
        }
        let folder = Folder::new();
        let Fresh { url, .. } = runtime().block_on(self.fresh());
        if url.is_none() {
            copy_template(&Start::new(&folder.0).data_dir());
        }
        test(url.as_deref(), &folder);
    }

    /// Returns `false` if the test can't run on this database, because PostgreSQL isn't installed, or because
    /// every database of this run is behind a pooler, which SQLite doesn't support.
    pub fn is_available(self) -> bool {
        match self {
            Self::Sqlite => through_poolers().is_none(),
            Self::Postgres => Cluster::shared().is_some(),
        }
    }

    /// Creates a new database with the current schema.
    ///
    /// # Panics
    /// Panics if the database isn't available.
    pub async fn fresh(self) -> Fresh {
        let url = match self {
            Self::Sqlite => None,
            Self::Postgres => Some(Cluster::shared().expect("it is installed").new_database().await),
        };
        Fresh { backend: self.name(), url }
    }
}

/// Copies a SQLite database with the current schema into a data folder, unless the folder already has a
/// database. A copy takes a fraction of the time that all migrations take.
pub fn copy_template(data_dir: &Path) {
    let database = data_dir.join("tollkeeper.db");
    if !database.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(data_dir).unwrap();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&database).unwrap();
        file.write_all(template()).unwrap();
    }
}

/// Returns the content of a SQLite database file with the current schema.
fn template() -> &'static [u8] {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        // Tests call this inside a runtime, and a thread of a runtime can't run another one.
        std::thread::spawn(migrated_file).join().unwrap()
    })
}

fn migrated_file() -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.0.join("tollkeeper.db");
    runtime().block_on(async {
        let db = Db::open(&Settings::Sqlite { path: path.clone() }).unwrap();
        db.migrate().await.unwrap();
    });
    // Moves the rest of the write-ahead log into the database file.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    std::fs::read(&path).unwrap()
}
