//! `tollkeeper backup`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::Failure;
use crate::app::database;
use crate::config::{Config, DatabaseUrl};
use db::{Backup, Db};
use kernel::random::Random;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The file to create; must not exist
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Makes a backup. Doesn't change the installation: no schema, data folder, or key is created.
pub fn run(config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    let file = std::path::absolute(&arguments.to)
        .map_err(|error| format!("--to {}: {error}", arguments.to.display()))?;
    if file.symlink_metadata().is_ok() {
        return Err(Failure::from(format!(
            "{} already exists and is not overwritten: choose another name",
            file.display()
        )));
    }
    let url = config.database_url_or_default();
    let DatabaseUrl::Sqlite(source) = &url else { return Err(pg_dump_failure(&url, &file, arguments.json)) };
    let backup = copy(config, source, &file)?;
    let master_key_file = match config.master_key {
        Some(_) => None,
        None => Some(config.master_key_file_or_default()),
    };
    super::print(&if arguments.json {
        json!({"database": "sqlite", "file": file, "schema": backup.schema, "size_bytes": backup.size_bytes,
               "checked": true, "master_key_included": false, "master_key_file": master_key_file})
        .to_string()
    } else {
        description(config, source, &file, backup, master_key_file.as_deref())
    });
    Ok(())
}

fn copy(config: &Config, source: &Path, file: &Path) -> Result<Backup, Failure> {
    if !source.exists() {
        return Err(Failure::from(format!(
            "no database found at {}: run this with the server's configuration",
            source.display()
        )));
    }
    let mut partial = file.as_os_str().to_owned();
    partial.push(format!(".{:016x}.partial", u64::from_be_bytes(Random::system().bytes())));
    let db = Db::open(&database(config)).map_err(|error| error.to_string())?;
    let copied = super::runtime()?.block_on(db.back_up(file, Path::new(&partial)));
    copied.map_err(|error| Failure::from(format!("no backup was made: {error}")))
}

fn description(
    config: &Config,
    source: &Path,
    file: &Path,
    backup: Backup,
    key_file: Option<&Path>,
) -> String {
    let key = match key_file {
        Some(path) => format!("It is in {}", path.display()),
        None => "It is in the configuration (`master_key`)".to_owned(),
    };
    let catalog = match &config.catalog_file {
        Some(path) => format!("the catalog ({}) and the configuration", path.display()),
        None => "the configuration".to_owned(),
    };
    format!(
        "{} was copied to {}: schema {}, {} bytes; the copy was verified.\n\
         The master key is not in the backup. {key}. Keep a copy of the key in a different place than this \
         file. Without the key, the signing keys and API keys in the backup can't be decrypted.\n\
         Keep {catalog} as well.",
        source.display(),
        file.display(),
        backup.schema,
        backup.size_bytes
    )
}

/// Returns the failure with the command for PostgreSQL. It contains no password: pg_dump reads it from
/// PGPASSWORD or ~/.pgpass.
fn pg_dump_failure(url: &DatabaseUrl, file: &Path, as_json: bool) -> Failure {
    let command = format!(
        "(umask 077 && pg_dump --format=custom --no-owner --no-privileges --file={} --dbname={})",
        shell_quote(&file.display().to_string()),
        shell_quote(&url.for_libpq())
    );
    if as_json {
        super::print(&json!({"database": "postgres", "checked": false, "command": command}).to_string());
    }
    let direct = if url.to_string().contains("pool_mode=") {
        "Put the address of the server itself in place of the pooler's. "
    } else {
        ""
    };
    Failure::misused(format!(
        "the database is PostgreSQL: use `pg_dump` to copy it consistently while servers run:\n  {command}\n\
         {direct}The password comes from PGPASSWORD or ~/.pgpass; the program must not be older than the \
         server. The master key is not in the copy: store it separately. Without the key, the sealed secrets \
         can't be decrypted."
    ))
}

/// Quotes a string for a shell.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
