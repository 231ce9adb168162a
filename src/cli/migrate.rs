//! `tollkeeper migrate`

use serde_json::json;

use crate::app::{database, make_data_dir};
use crate::config::Config;
use db::Db;

pub fn run(config: &Config, as_json: bool) -> Result<(), String> {
    super::runtime()?.block_on(async {
        make_data_dir(config)?;
        let db = Db::open(&database(config)).map_err(|error| error.to_string())?;
        let done = db.migrate().await.map_err(|error| error.to_string())?;
        if as_json {
            super::print(&json!({"from": done.from, "to": done.to, "applied": done.applied}).to_string());
        } else if done.applied.is_empty() {
            super::print(&format!("The database already has schema {}.", done.to));
        } else {
            super::print(&format!(
                "The database now has schema {}; applied: {}.",
                done.to,
                done.applied.join(", ")
            ));
        }
        Ok(())
    })
}
