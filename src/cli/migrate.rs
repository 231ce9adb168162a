//! `tollkeeper migrate`

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde_json::json;

use crate::app::database;
use crate::config::Config;
use crate::db::Db;

pub fn run(config: &Config, as_json: bool) -> Result<(), String> {
    super::runtime()?.block_on(async {
        if config.database_url.is_none() {
            make_folder(&config.data_dir)
                .map_err(|error| format!("{}: {error}", config.data_dir.display()))?;
        }
        let db = Db::open(&database(config)).map_err(|error| error.to_string())?;
        let done = db.migrate().await.map_err(|error| error.to_string())?;
        if as_json {
            super::print(&json!({"from": done.from, "to": done.to, "applied": done.applied}).to_string());
        } else if done.applied.is_empty() {
            super::print(&format!("The database has schema {} already.", done.to));
        } else {
            super::print(&format!(
                "The database has schema {} now; applied: {}.",
                done.to,
                done.applied.join(", ")
            ));
        }
        Ok(())
    })
}

/// As private as the server makes it.
fn make_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
