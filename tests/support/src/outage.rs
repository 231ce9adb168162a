//! A world whose database can be made unavailable for a while.

use std::path::PathBuf;

use super::database::Database;
use super::postgres::Cluster;
use super::world::{World, runtime};

/// The files of a SQLite database.
const FILES: [&str; 3] = ["tollkeeper.db", "tollkeeper.db-wal", "tollkeeper.db-shm"];

/// A database that can be made unavailable.
pub enum Removable {
    /// A SQLite database in this folder. Its files are renamed.
    Files(PathBuf),
    /// A separate PostgreSQL server. It is stopped.
    Server(Box<Cluster>),
}

/// Runs a test on SQLite, or on a separate PostgreSQL server. The settings are pairs of environment
/// variables.
pub fn with_outage(database: Database, settings: &[(&str, &str)], test: impl AsyncFnOnce(World, Removable)) {
    if !database.is_available() {
        return;
    }
    runtime().block_on(async {
        match database {
            Database::Sqlite => {
                let world = World::new(database.name(), None, settings).await;
                let files = Removable::Files(world.data_dir.clone());
                test(world, files).await;
            }
            Database::Postgres => {
                let cluster = Cluster::private().expect("it is installed");
                let url = cluster.new_database().await;
                let world = World::new(database.name(), Some(url), settings).await;
                test(world, Removable::Server(Box::new(cluster))).await;
            }
        }
    });
}

impl Removable {
    /// Makes the database unavailable. Every statement fails from now on.
    pub async fn go(&self, world: &World) {
        match self {
            Self::Files(folder) => {
                for file in FILES {
                    let (from, to) = (folder.join(file), folder.join(format!("{file}.away")));
                    assert!(std::fs::rename(&from, &to).is_ok() || file != FILES[0], "{}", from.display());
                }
            }
            Self::Server(cluster) => cluster.stop(),
        }
        assert!(world.app.db.ping().await.is_err(), "the database is still there");
    }

    /// Makes the database available again, with its content unchanged.
    pub async fn come_back(&self, world: &World) {
        match self {
            Self::Files(folder) => {
                for file in FILES {
                    let (from, to) = (folder.join(format!("{file}.away")), folder.join(file));
                    assert!(std::fs::rename(&from, &to).is_ok() || file != FILES[0], "{}", from.display());
                }
            }
            Self::Server(cluster) => cluster.start(),
        }
        world.app.db.ping().await.unwrap();
        world.catch_up().await;
    }
}
