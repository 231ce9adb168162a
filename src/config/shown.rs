//! The output of `tollkeeper config`, and the names of the keys.

use std::borrow::Cow;
use std::sync::LazyLock;

use input::json::{Json, Members};

use super::{Config, PublicUrl};

/// The names of all keys, with a dot between table and key.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let name =
        |table: &str, key: &str| if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
    tables(&to_json(&Config::default()))
        .iter()
        .flat_map(|(table, keys)| keys.iter().map(move |(key, _)| name(table, key)))
        .collect()
});

/// Returns the names of all keys, such as `limits.enabled`, for documents and suggestions.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(String::as_str)
}

/// Returns the configuration with the values that are derived from others.
fn effective(config: &Config) -> Config {
    Config {
        database_url: Some(config.database_url_or_default()),
        master_key_file: config.master_key.is_none().then(|| config.master_key_file_or_default()),
        public_url: PublicUrl::parse(&config.public_url()),
        ..config.clone()
    }
}

/// Returns the effective configuration as a JSON object.
pub fn to_json(config: &Config) -> String {
    // All maps have string keys, so this can't fail.
    serde_json::to_string(&effective(config)).unwrap_or_default()
}

/// Returns the tables of a configuration in JSON with their keys and values, the root table first.
fn tables(json: &str) -> Vec<(Cow<'_, str>, Members<'_>)> {
    let mut tables = vec![(Cow::Borrowed(""), Members::new())];
    let Ok(Json::Object(members)) = input::json::parse(json.as_bytes()) else { return tables };
    for (name, value) in members {
        match value {
            Json::Object(keys) => tables.push((name, keys)),
            value => tables.iter_mut().take(1).for_each(|(_, root)| root.push((name.clone(), value.clone()))),
        }
    }
    tables
}

/// Returns the effective configuration as a TOML file; unset keys are comments.
pub fn to_toml(config: &Config) -> String {
    let mut text = String::new();
    for (table, keys) in tables(&to_json(config)) {
        if !table.is_empty() {
            text += &format!("\n[{table}]\n");
        }
        for (key, value) in keys {
            text += &match toml_value(value) {
                Some(value) => format!("{key} = {value}\n"),
                None => format!("# {key} is not set\n"),
            };
        }
    }
    text
}

fn toml_value(value: Json<'_>) -> Option<toml::Value> {
    match value {
        Json::Null | Json::Object(_) => None,
        Json::Bool(flag) => Some(flag.into()),
        Json::Integer(number) => Some(number.into()),
        Json::Float(number) => Some(number.into()),
        Json::Text(text) => Some(text.into_owned().into()),
        Json::Array(items) => Some(toml::Value::Array(items.into_iter().filter_map(toml_value).collect())),
    }
}
