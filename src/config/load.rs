//! Loading of the configuration from defaults, file, and environment, with the location of every error.

use std::borrow::Cow;
use std::path::Path;

use kernel::document::{self, DeTable, DeValue, Mistake, MistakeKind, variable};
use kernel::spelling::closest;

use super::shown::names;
use super::{Config, DatabaseUrl};

/// Implements [`Config::load`]. `default_file` is read if it exists and no file is specified.
pub fn load(
    file: Option<&Path>,
    default_file: &Path,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Config, String> {
    let path = file.or_else(|| Some(default_file).filter(|path| path.exists()));
    let shown = path.map(|path| path.display().to_string()).unwrap_or_default();
    let text = match path.map(std::fs::read_to_string) {
        Some(text) => text.map_err(|error| format!("{shown}: the file can't be read: {error}"))?,
        None => String::new(),
    };
    let in_file = |mistake: Mistake<'_>| {
        let line = mistake.line;
        format!("{shown}:{line}: {}", describe(mistake))
    };
    let mut table = document::parse(&text).map_err(in_file)?;
    document::read::<Config>(&table, &text).map_err(in_file)?;

    let environment = settings(environment);
    let mut variables = Vec::new();
    for (name, text) in &environment {
        let read = read_variable(name, text);
        let (key, value) = read.map_err(|why| format!("environment variable {name}: {why}"))?;
        document::set(&mut table, key, value);
        variables.push(key);
    }
    let config = document::read(&table, "").map_err(in_file)?;
    check(&config).map_err(|(key, why)| {
        let place = match document::find(&table, key) {
            _ if variables.contains(&key) => format!("environment variable {}", variable(key)),
            Some(value) => format!("{shown}:{}", document::line(&text, value.span().start)),
            None => "defaults".to_owned(),
        };
        format!("{place}: `{key}`: {why}")
    })?;
    Ok(config)
}

/// Returns the variables that set keys, sorted by name.
fn settings(environment: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut ours: Vec<_> =
        environment.into_iter().filter(|(name, _)| name.starts_with("TOLLKEEPER_")).collect();
    ours.sort();
    let linked = ours.iter().any(|(name, _)| name.ends_with("_SERVICE_HOST"));
    let is_foreign = |name: &str| {
        let ignored = name == "TOLLKEEPER_CONFIG" || name.starts_with("TOLLKEEPER_TEST_");
        ignored || (linked && is_service_link(name))
    };
    ours.retain(|(name, _)| !is_foreign(name));
    ours
}

/// Reads a variable: as a string if the key takes one, otherwise as TOML, so that `true`, `100`, and `["a"]`
/// work.
fn read_variable<'a>(name: &str, text: &'a str) -> Result<(&'static str, DeValue<'a>), String> {
    let Some(key) = names().find(|key| variable(key) == *name) else {
        let words = name.strip_prefix("TOLLKEEPER_").unwrap_or(name).to_lowercase().replace("__", ".");
        return Err(format!("unknown key{}", hint(&words, variable)));
    };
    let read = |value: DeValue<'a>| {
        let mut table = DeTable::new();
        document::set(&mut table, key, value.clone());
        document::read::<Config>(&table, text).map(|_| (key, value))
    };
    read(DeValue::String(Cow::Borrowed(text))).or_else(|mistake| match DeValue::parse(text) {
        Ok(value) => read(value.into_inner()).map_err(describe),
        Err(_) => Err(describe(mistake)),
    })
}

/// Describes an error without the value that was found, which may be a secret.
fn describe(Mistake { key, kind, .. }: Mistake<'_>) -> String {
    match kind {
        MistakeKind::Syntax(why) => why,
        MistakeKind::UnknownKey(_) => format!("unknown key `{key}`{}", hint(&key, str::to_owned)),
        MistakeKind::MissingKey => format!("the key `{key}` is missing"),
        MistakeKind::Wrong { expected, .. } if expected == "expected a table" => {
            format!("`{key}` is a table: write `[{key}]` and its keys below")
        }
        MistakeKind::Wrong { expected, .. } => format!("`{key}`: {expected}"),
    }
}

/// Checks that keys don't conflict.
///
/// # Errors
/// A conflicting key, and the reason.
fn check(config: &Config) -> Result<(), (&'static str, String)> {
    let on_postgres = matches!(config.database_url, Some(DatabaseUrl::Postgres(_)));
    let two = |key, other: &str| Err((key, format!("expected either this or `{other}`, not both")));
    if config.listen == config.service_listen && config.listen.port() != 0 {
        let why = "expected an address other than `listen`: the service listener must not be reachable \
                   there";
        return Err(("service_listen", why.to_owned()));
    }
    if config.master_key.is_some() && config.master_key_file.is_some() {
        return two("master_key", "master_key_file");
    }
    if config.master_key_previous.is_some() && config.master_key_previous_file.is_some() {
        return two("master_key_previous", "master_key_previous_file");
    }
    if config.database_replica_url.is_some() && !on_postgres {
        let why = "expected PostgreSQL in `database_url` as well: an SQLite file has no replica";
        return Err(("database_replica_url", why.to_owned()));
    }
    let payments = &config.payments;
    let (key, secret) = ("payments.stripe_secret_key_file", "payments.stripe_webhook_secret_file");
    match (payments.stripe_secret_key_file.is_some(), payments.stripe_webhook_secret_file.is_some()) {
        (true, false) => {
            return Err((
                key,
                format!("expected `{secret}` as well: without it, events of Stripe can't be verified"),
            ));
        }
        (false, true) => {
            return Err((secret, format!("expected `{key}` as well: without it, nothing can be charged")));
        }
        _ => {}
    }
    let is_paid_online = payments.stripe_secret_key_file.is_some();
    for (name, is_set) in [
        ("payments.stripe_tax", payments.stripe_tax),
        ("payments.stripe_tax_code", payments.stripe_tax_code.is_some()),
    ] {
        if is_set && !is_paid_online {
            return Err((name, format!("expected `{key}` as well: online payments are off without it")));
        }
    }
    if payments.stripe_tax_code.is_some() && !payments.stripe_tax {
        let why = "expected `payments.stripe_tax = true` as well: no tax is calculated without it";
        return Err(("payments.stripe_tax_code", why.to_owned()));
    }
    let tls = &config.tls;
    for (certificate, has_certificate, key, has_key) in [
        ("tls.certificate_file", tls.certificate_file.is_some(), "tls.key_file", tls.key_file.is_some()),
        (
            "tls.service_certificate_file",
            tls.service_certificate_file.is_some(),
            "tls.service_key_file",
            tls.service_key_file.is_some(),
        ),
    ] {
        let (set, missing) = if has_certificate { (certificate, key) } else { (key, certificate) };
        if has_certificate != has_key {
            return Err((set, format!("expected `{missing}` as well: TLS needs both files")));
        }
    }
    Ok(())
}

/// Returns ` (did you mean …?)` with the closest key or table, if any is close, or else with the same key of
/// another table.
fn hint(name: &str, write: impl Fn(&str) -> String) -> String {
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

/// Returns `true` for the variables with which Kubernetes describes services. For a service named
/// `tollkeeper`, they begin like ours: `TOLLKEEPER_SERVICE_HOST`, `TOLLKEEPER_PORT_8080_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let name = name.strip_prefix("TOLLKEEPER").unwrap_or(name);
    let port = name.rsplit_once("_PORT").map(|(_, rest)| rest.trim_start_matches('_'));
    let host = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    let numbered =
        name.split_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    host || numbered || port == Some("")
}
