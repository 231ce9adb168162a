//! Loading of the configuration: defaults, file and environment, with the place of every mistake.

use std::collections::HashMap;
use std::path::Path;

use kernel::spelling::closest;

use super::keys::{KEYS, Key};
use super::redaction::redacted;
use super::{Config, ConfigError, DatabaseUrl};
use document::{Entry, Value, variable};

/// Implements [`Config::load`]; `default_file` is read if it exists and no other file is named.
pub fn load(
    file: Option<&Path>,
    default_file: &Path,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Config, ConfigError> {
    let mut loader = Loader { config: Config::default(), places: HashMap::new(), problems: Vec::new() };
    match file {
        Some(path) => loader.file(path),
        None if default_file.exists() => loader.file(default_file),
        None => {}
    }
    loader.environment(environment);
    loader.check_combinations();
    if loader.problems.is_empty() {
        Ok(loader.config)
    } else {
        Err(ConfigError { problems: loader.problems })
    }
}

struct Loader {
    config: Config,
    /// The place where each key was set last.
    places: HashMap<&'static str, String>,
    problems: Vec<String>,
}

impl Loader {
    fn file(&mut self, path: &Path) {
        let shown = path.display();
        match std::fs::read_to_string(path).map(|text| document::parse(&text)) {
            Ok(Ok(entries)) => self.table(&shown.to_string(), "", &entries),
            Ok(Err(problem)) => self.problems.push(format!("{shown}:{}: {}", problem.line, problem.message)),
            Err(error) => self.problems.push(format!("{shown}: the file can't be read: {error}")),
        }
    }

    fn table(&mut self, file: &str, table: &str, entries: &[Entry]) {
        for entry in entries {
            let name = if table.is_empty() { entry.key.clone() } else { format!("{table}.{}", entry.key) };
            match (find(&name), is_table(&name), &entry.node.value) {
                (Some(key), _, value) => {
                    let place = format!("{file}:{}", entry.node.line);
                    self.set(key, place, |config| (key.set)(config, value), value);
                }
                (None, true, Value::Table(entries)) => self.table(file, &name, entries),
                (None, true, _) => {
                    let message = format!("`{name}` is a table: write `[{name}]` and its keys below");
                    self.problems.push(format!("{file}:{}: {message}", entry.line));
                }
                (None, false, _) => {
                    let hint = hint(&name, str::to_owned);
                    self.problems.push(format!("{file}:{}: there is no key `{name}`{hint}", entry.line));
                }
            }
        }
    }

    fn environment(&mut self, environment: impl IntoIterator<Item = (String, String)>) {
        let mut ours: Vec<(String, String)> =
            environment.into_iter().filter(|(name, _)| name.starts_with("TOLLKEEPER_")).collect();
        ours.sort();
        let linked = ours.iter().any(|(name, _)| name.ends_with("_SERVICE_HOST"));
        for (name, text) in &ours {
            let ignored = name == "TOLLKEEPER_CONFIG" || name.starts_with("TOLLKEEPER_TEST_");
            if ignored || (linked && is_service_link(name)) {
                continue;
            }
            let Some(key) = KEYS.iter().find(|key| variable(key.name) == *name) else {
                let words = name.strip_prefix("TOLLKEEPER_").unwrap_or(name);
                let hint = hint(&words.to_lowercase().replace("__", "."), variable);
                self.problems.push(format!("environment variable {name}: there is no such key{hint}"));
                continue;
            };
            let value = Value::Text(text.clone());
            let place = format!("environment variable {name}");
            self.set(key, place, |config| set_from_text(key, config, &value), &value);
        }
    }

    fn set(
        &mut self,
        key: &Key,
        place: String,
        set: impl FnOnce(&mut Config) -> Result<(), String>,
        value: &Value,
    ) {
        match set(&mut self.config) {
            Ok(()) => {
                self.places.insert(key.name, place);
            }
            Err(message) if key.secret => self.problems.push(format!("{place}: `{}`: {message}", key.name)),
            Err(message) => {
                let found = redacted(value);
                self.problems.push(format!("{place}: `{}`: {message}, found {found}", key.name));
            }
        }
    }

    /// Checks combinations of values.
    fn check_combinations(&mut self) {
        let config = &self.config;
        if config.listen == config.service_listen && config.listen.port() != 0 {
            self.add_conflict(
                "service_listen",
                "expected another address than `listen`: the service listener must not be reachable there",
            );
        }
        if self.config.master_key.is_some() && self.config.master_key_file.is_some() {
            self.add_conflict("master_key", "expected either this or `master_key_file`, not both");
        }
        if self.config.master_key_previous.is_some() && self.config.master_key_previous_file.is_some() {
            let message = "expected either this or `master_key_previous_file`, not both";
            self.add_conflict("master_key_previous", message);
        }
        let on_postgres = matches!(self.config.database_url, Some(DatabaseUrl::Postgres(_)));
        if self.config.database_replica_url.is_some() && !on_postgres {
            self.add_conflict(
                "database_replica_url",
                "expected a PostgreSQL in `database_url` as well: an SQLite file has no replica",
            );
        }
        let tls = &self.config.tls;
        let pairs = [
            ("tls.certificate_file", tls.certificate_file.is_some(), "tls.key_file", tls.key_file.is_some()),
            (
                "tls.service_certificate_file",
                tls.service_certificate_file.is_some(),
                "tls.service_key_file",
                tls.service_key_file.is_some(),
            ),
        ];
        for (certificate, has_certificate, key, has_key) in pairs {
            let (set, missing) = if has_certificate { (certificate, key) } else { (key, certificate) };
            if has_certificate != has_key {
                self.add_conflict(set, &format!("expected `{missing}` as well: TLS needs both files"));
            }
        }
    }

    fn add_conflict(&mut self, name: &str, message: &str) {
        let place = self.places.get(name).map_or_else(|| "defaults".to_owned(), Clone::clone);
        self.problems.push(format!("{place}: `{name}`: {message}"));
    }
}

/// Sets a key from a variable: the text itself, or else parsed as TOML, so that `true`, `100` and `["a"]`
/// work.
fn set_from_text(key: &Key, config: &mut Config, value: &Value) -> Result<(), String> {
    let as_text = (key.set)(config, value);
    let Value::Text(text) = value else { return as_text };
    as_text.or_else(|message| match document::parse_value(text) {
        Some(parsed) => (key.set)(config, &parsed),
        None => Err(message),
    })
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
}

/// Returns ` (did you mean …?)` with the closest key or table, if one is close; otherwise with the same key
/// of another table.
fn hint(name: &str, write: impl Fn(&str) -> String) -> String {
    let names = || KEYS.iter().map(|key| key.name);
    let tables = names().filter_map(|name| name.split_once('.').map(|(table, _)| table));
    let elsewhere = || {
        let last = closest(last_part(name), names().map(last_part))?;
        names().find(|name| last_part(name) == last)
    };
    closest(name, names().chain(tables))
        .or_else(elsewhere)
        .map_or_else(String::new, |meant| format!(" (did you mean `{}`?)", write(meant)))
}

fn last_part(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// Returns `true` for the variables with which Kubernetes describes services. With a service named
/// `tollkeeper` they start like ours: `TOLLKEEPER_SERVICE_HOST`, `TOLLKEEPER_PORT_8080_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let name = name.strip_prefix("TOLLKEEPER").unwrap_or(name);
    let port = name.rsplit_once("_PORT").map(|(_, rest)| rest.trim_start_matches('_'));
    let host = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    let numbered =
        name.split_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    host || numbered || port == Some("")
}
