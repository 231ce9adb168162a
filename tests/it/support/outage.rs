//! A world whose database can be taken away for a while.

use std::path::PathBuf;

use super::postgres::{Cluster, through_poolers};
use super::world::{World, runtime};

/// The files of a SQLite database.
const FILES: [&str; 3] = ["tollkeeper.db", "tollkeeper.db-wal", "tollkeeper.db-shm"];

/// The database of a world.
pub enum Database {
    /// SQLite in this folder: its files are moved away.
    Files(PathBuf),
    /// A PostgreSQL of its own: it is stopped.
    Server(Box<Cluster>),
}

/// Runs a test on SQLite, and on a PostgreSQL of its own when it is to be had, with configuration: pairs of
/// environment variables.
pub fn on_each_database_that_can_go(settings: &[(&str, &str)], test: impl AsyncFn(World, Database)) {
    runtime().block_on(async {
        if through_poolers().is_none() {
            let world = World::new("sqlite", None, settings).await;
            let files = Database::Files(world.data_dir.clone());
            test(world, files).await;
        }
        if let Some(cluster) = Cluster::private() {
            let url = cluster.new_database().await;
            let world = World::new("postgres", Some(url), settings).await;
            test(world, Database::Server(Box::new(cluster))).await;
        }
    });
}

impl Database {
    /// Takes the database away: every statement fails from now on.
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

    /// Brings the database back, as it was.
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
