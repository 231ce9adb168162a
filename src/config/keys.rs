//! The table of every key: its name, how it is read and how it is shown.

use std::ops::RangeInclusive;
use std::path::Path;

use super::Config;
use super::readers::{self as read, Read};
use super::types::HIDDEN;
use document::Value;
use keys::rules::rotation::MAX_GRACE_HOURS;

/// The smallest budget for unfinished bodies: the largest body has to fit.
const MIN_BODY_BUDGET_BYTES: i64 = 16 * 1024 * 1024;

/// A key of the configuration.
pub struct Key {
    /// The name with a dot between table and key, such as `limits.enabled`.
    pub name: &'static str,
    /// `true` if its value may hold a secret, which no error may show.
    pub secret: bool,
    /// Reads a value into the configuration; a wrong value changes nothing.
    pub set: fn(&mut Config, &Value) -> Read<()>,
    /// Returns the effective value without secrets; `None` if not set.
    pub show: fn(&Config) -> Option<toml::Value>,
}

const fn key(
    name: &'static str,
    set: fn(&mut Config, &Value) -> Read<()>,
    show: fn(&Config) -> Option<toml::Value>,
) -> Key {
    Key { name, secret: false, set, show }
}

const fn secret(
    name: &'static str,
    set: fn(&mut Config, &Value) -> Read<()>,
    show: fn(&Config) -> Option<toml::Value>,
) -> Key {
    Key { name, secret: true, set, show }
}

/// Every key; those of the root table come first, as TOML requires.
pub const KEYS: &[Key] = &[
    key("listen", |c, v| put(&mut c.listen, read::socket(v)), |c| text(&c.listen)),
    key("service_listen", |c, v| put(&mut c.service_listen, read::socket(v)), |c| text(&c.service_listen)),
    secret(
        "service_token",
        |c, v| put_some(&mut c.service_token, read::token(v)),
        |c| c.service_token.as_ref().and_then(|_| text(HIDDEN)),
    ),
    key("data_dir", |c, v| put(&mut c.data_dir, read::path(v)), |c| path(&c.data_dir)),
    secret(
        "database_url",
        |c, v| put_some(&mut c.database_url, read::database(v)),
        |c| text(&c.database_url_or_default()),
    ),
    secret(
        "database_replica_url",
        |c, v| put_some(&mut c.database_replica_url, read::replica(v)),
        |c| c.database_replica_url.as_ref().and_then(text),
    ),
    key(
        "database_replica_max_lag_seconds",
        |c, v| put(&mut c.database_replica_max_lag_seconds, read::whole(v, 3..=3_600)),
        |c| number(c.database_replica_max_lag_seconds),
    ),
    key(
        "database_allow_fsync_off",
        |c, v| put(&mut c.database_allow_fsync_off, read::boolean(v)),
        |c| flag(c.database_allow_fsync_off),
    ),
    secret(
        "master_key",
        |c, v| put_some(&mut c.master_key, read::master_key(v)),
        |c| c.master_key.as_ref().and_then(|_| text(HIDDEN)),
    ),
    key(
        "master_key_file",
        |c, v| put_some(&mut c.master_key_file, read::key_path(v)),
        |c| if c.master_key.is_some() { None } else { path(&c.master_key_file_or_default()) },
    ),
    secret(
        "master_key_previous",
        |c, v| put_some(&mut c.master_key_previous, read::master_key(v)),
        |c| c.master_key_previous.as_ref().and_then(|_| text(HIDDEN)),
    ),
    key(
        "master_key_previous_file",
        |c, v| put_some(&mut c.master_key_previous_file, read::key_path(v)),
        |c| c.master_key_previous_file.as_deref().and_then(path),
    ),
    key("public_url", |c, v| put_some(&mut c.public_url, read::public_url(v)), |c| text(&c.public_url())),
    key(
        "require_verified_email",
        |c, v| put(&mut c.require_verified_email, read::boolean(v)),
        |c| flag(c.require_verified_email),
    ),
    key(
        "catalog_file",
        |c, v| put_some(&mut c.catalog_file, read::path(v)),
        |c| c.catalog_file.as_deref().and_then(path),
    ),
    key("trusted_proxies", |c, v| put(&mut c.trusted_proxies, read::ranges(v)), |c| list(&c.trusted_proxies)),
    key("cors_origins", |c, v| put(&mut c.cors_origins, read::origins(v)), |c| list(&c.cors_origins)),
    key(
        "shutdown_grace_ms",
        |c, v| put(&mut c.shutdown_grace_ms, read::whole(v, 0..=600_000)),
        |c| number(c.shutdown_grace_ms),
    ),
    key(
        "server.head_timeout_seconds",
        |c, v| put(&mut c.server.head_timeout_seconds, seconds(v)),
        |c| number(c.server.head_timeout_seconds),
    ),
    key(
        "server.body_timeout_seconds",
        |c, v| put(&mut c.server.body_timeout_seconds, seconds(v)),
        |c| number(c.server.body_timeout_seconds),
    ),
    key(
        "server.write_timeout_seconds",
        |c, v| put(&mut c.server.write_timeout_seconds, seconds(v)),
        |c| number(c.server.write_timeout_seconds),
    ),
    key(
        "server.idle_timeout_seconds",
        |c, v| put(&mut c.server.idle_timeout_seconds, seconds(v)),
        |c| number(c.server.idle_timeout_seconds),
    ),
    key(
        "server.max_connections",
        |c, v| put(&mut c.server.max_connections, read::whole(v, 1..=1_000_000)),
        |c| number(c.server.max_connections),
    ),
    key(
        "server.body_budget_bytes",
        |c, v| put(&mut c.server.body_budget_bytes, read::whole(v, MIN_BODY_BUDGET_BYTES..=1 << 40)),
        |c| i64::try_from(c.server.body_budget_bytes).ok().and_then(number),
    ),
    key(
        "server.hsts_seconds",
        // Two years, as the preload lists of browsers ask for.
        |c, v| put(&mut c.server.hsts_seconds, read::whole(v, 0..=63_072_000)),
        |c| number(c.server.hsts_seconds),
    ),
    key(
        "tls.certificate_file",
        |c, v| put_some(&mut c.tls.certificate_file, read::path(v)),
        |c| c.tls.certificate_file.as_deref().and_then(path),
    ),
    key(
        "tls.key_file",
        |c, v| put_some(&mut c.tls.key_file, read::path(v)),
        |c| c.tls.key_file.as_deref().and_then(path),
    ),
    key(
        "tls.service_certificate_file",
        |c, v| put_some(&mut c.tls.service_certificate_file, read::path(v)),
        |c| c.tls.service_certificate_file.as_deref().and_then(path),
    ),
    key(
        "tls.service_key_file",
        |c, v| put_some(&mut c.tls.service_key_file, read::path(v)),
        |c| c.tls.service_key_file.as_deref().and_then(path),
    ),
    secret("mail.url", |c, v| put(&mut c.mail.url, read::mail_url(v)), |c| text(&c.mail.url)),
    key("mail.from", |c, v| put(&mut c.mail.from, read::mailbox(v)), |c| text(&c.mail.from)),
    key("log.format", |c, v| put(&mut c.log.format, read::log_format(v)), |c| text(c.log.format.as_str())),
    key("log.level", |c, v| put(&mut c.log.level, read::log_level(v)), |c| text(&c.log.level)),
    key("log.access", |c, v| put(&mut c.log.access, read::boolean(v)), |c| flag(c.log.access)),
    key("limits.enabled", |c, v| put(&mut c.limits.enabled, read::boolean(v)), |c| flag(c.limits.enabled)),
    key(
        "limits.reads_per_minute",
        |c, v| put(&mut c.limits.reads_per_minute, rate(v)),
        |c| number(c.limits.reads_per_minute),
    ),
    key(
        "limits.writes_per_minute",
        |c, v| put(&mut c.limits.writes_per_minute, rate(v)),
        |c| number(c.limits.writes_per_minute),
    ),
    key(
        "limits.logins_per_minute",
        |c, v| put(&mut c.limits.logins_per_minute, rate(v)),
        |c| number(c.limits.logins_per_minute),
    ),
    key(
        "limits.registrations_per_minute",
        |c, v| put(&mut c.limits.registrations_per_minute, rate(v)),
        |c| number(c.limits.registrations_per_minute),
    ),
    key(
        "limits.password_resets_per_hour",
        |c, v| put(&mut c.limits.password_resets_per_hour, rate(v)),
        |c| number(c.limits.password_resets_per_hour),
    ),
    key(
        "limits.login_failures",
        |c, v| put(&mut c.limits.login_failures, read::whole(v, 1..=1_000)),
        |c| number(c.limits.login_failures),
    ),
    key(
        "limits.login_failures_all_networks",
        |c, v| put(&mut c.limits.login_failures_all_networks, read::whole(v, 1..=100_000)),
        |c| number(c.limits.login_failures_all_networks),
    ),
    key(
        "limits.bad_credentials_per_minute",
        |c, v| put(&mut c.limits.bad_credentials_per_minute, rate(v)),
        |c| number(c.limits.bad_credentials_per_minute),
    ),
    key(
        "limits.verifications_per_hour",
        |c, v| put(&mut c.limits.verifications_per_hour, rate(v)),
        |c| number(c.limits.verifications_per_hour),
    ),
    key(
        "limits.mails_per_recipient_hour",
        |c, v| put(&mut c.limits.mails_per_recipient_hour, rate(v)),
        |c| number(c.limits.mails_per_recipient_hour),
    ),
    key(
        "limits.mails_per_account_hour",
        |c, v| put(&mut c.limits.mails_per_account_hour, rate(v)),
        |c| number(c.limits.mails_per_account_hour),
    ),
    key(
        "limits.mails_per_address_hour",
        |c, v| put(&mut c.limits.mails_per_address_hour, rate(v)),
        |c| number(c.limits.mails_per_address_hour),
    ),
    key(
        "limits.organizations_per_person",
        |c, v| put(&mut c.limits.organizations_per_person, rate(v)),
        |c| number(c.limits.organizations_per_person),
    ),
    key(
        "limits.projects_per_organization",
        |c, v| put(&mut c.limits.projects_per_organization, rate(v)),
        |c| number(c.limits.projects_per_organization),
    ),
    key(
        "limits.open_invitations_per_organization",
        |c, v| put(&mut c.limits.open_invitations_per_organization, rate(v)),
        |c| number(c.limits.open_invitations_per_organization),
    ),
    key(
        "limits.api_keys_per_project",
        |c, v| put(&mut c.limits.api_keys_per_project, rate(v)),
        |c| number(c.limits.api_keys_per_project),
    ),
    key(
        "limits.password_changes_per_hour",
        |c, v| put(&mut c.limits.password_changes_per_hour, rate(v)),
        |c| number(c.limits.password_changes_per_hour),
    ),
    key(
        "limits.sessions_per_person",
        |c, v| put(&mut c.limits.sessions_per_person, read::whole(v, 1..=10_000)),
        |c| number(c.limits.sessions_per_person),
    ),
    key(
        "retention.unverified_accounts_days",
        |c, v| put(&mut c.retention.unverified_accounts_days, days(v)),
        |c| number(c.retention.unverified_accounts_days),
    ),
    key(
        "retention.audit_log_days",
        |c, v| put(&mut c.retention.audit_log_days, read::zero_or_whole(v, AUDIT_LOG_DAYS)),
        |c| number(c.retention.audit_log_days),
    ),
    key(
        "retention.mail_files_days",
        |c, v| put(&mut c.retention.mail_files_days, days(v)),
        |c| number(c.retention.mail_files_days),
    ),
    key(
        "billing.credit_limit",
        |c, v| put(&mut c.billing.credit_limit, read::amount(v)),
        |c| text(&c.billing.credit_limit),
    ),
    key(
        "billing.further_credit_limit",
        |c, v| put(&mut c.billing.further_credit_limit, read::amount(v)),
        |c| text(&c.billing.further_credit_limit),
    ),
    key(
        "billing.currency",
        |c, v| put(&mut c.billing.currency, read::currency(v)),
        |c| text(&c.billing.currency),
    ),
    key(
        "billing.reservation_minutes",
        |c, v| put(&mut c.billing.reservation_minutes, read::whole(v, 1..=1_440)),
        |c| number(c.billing.reservation_minutes),
    ),
    key(
        "billing.issuer_name",
        |c, v| put_some(&mut c.billing.issuer_name, read::line(v)),
        |c| c.billing.issuer_name.as_deref().and_then(text),
    ),
    key(
        "billing.issuer_address",
        |c, v| put_some(&mut c.billing.issuer_address, read::lines(v)),
        |c| c.billing.issuer_address.as_deref().and_then(text),
    ),
    key(
        "api_keys.management",
        |c, v| put(&mut c.api_keys.management, read::management(v)),
        |c| text(c.api_keys.management.as_str()),
    ),
    key(
        "api_keys.prefix",
        |c, v| put(&mut c.api_keys.prefix, read::key_prefix(v)),
        |c| text(&c.api_keys.prefix),
    ),
    key(
        "api_keys.keep_sealed",
        |c, v| put(&mut c.api_keys.keep_sealed, read::boolean(v)),
        |c| flag(c.api_keys.keep_sealed),
    ),
    key(
        "api_keys.rotation_grace_hours",
        |c, v| put(&mut c.api_keys.rotation_grace_hours, read::whole(v, 0..=MAX_GRACE_HOURS)),
        |c| number(c.api_keys.rotation_grace_hours),
    ),
    key(
        "passwords.hash_threads",
        |c, v| put(&mut c.passwords.hash_threads, read::whole(v, 1..=256)),
        |c| i64::try_from(c.passwords.hash_threads).ok().and_then(number),
    ),
    key(
        "passwords.queue",
        |c, v| put(&mut c.passwords.queue, read::whole(v, 1..=100_000)),
        |c| i64::try_from(c.passwords.queue).ok().and_then(number),
    ),
    key(
        "audit.every_hours",
        |c, v| put(&mut c.audit.every_hours, read::whole(v, 0..=720)),
        |c| number(c.audit.every_hours),
    ),
    key(
        "telemetry.endpoint",
        |c, v| put_some(&mut c.telemetry.endpoint, read::public_url(v)),
        |c| c.telemetry.endpoint.as_ref().and_then(|url| text(url.as_str())),
    ),
    secret(
        "telemetry.headers",
        |c, v| put(&mut c.telemetry.headers, read::headers(v)),
        |c| list(&c.telemetry.headers),
    ),
    key(
        "telemetry.sample_ratio",
        |c, v| put(&mut c.telemetry.sample_ratio, read::ratio(v)),
        |c| text(&c.telemetry.sample_ratio),
    ),
    key("telemetry.logs", |c, v| put(&mut c.telemetry.logs, read::boolean(v)), |c| flag(c.telemetry.logs)),
];

/// Returns the names of all keys, for documents and suggestions.
pub fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

fn put<T>(slot: &mut T, value: Read<T>) -> Read<()> {
    *slot = value?;
    Ok(())
}

fn put_some<T>(slot: &mut Option<T>, value: Read<T>) -> Read<()> {
    *slot = Some(value?);
    Ok(())
}

fn rate(value: &Value) -> Read<u32> {
    read::whole(value, 1..=1_000_000)
}

/// Database triggers keep audit entries for 90 days in any case.
const AUDIT_LOG_DAYS: RangeInclusive<i64> = 90..=36_500;

fn days(value: &Value) -> Read<u32> {
    read::whole(value, 0..=36_500)
}

fn seconds(value: &Value) -> Read<u32> {
    read::whole(value, 1..=3_600)
}

fn text(value: &(impl ToString + ?Sized)) -> Option<toml::Value> {
    Some(toml::Value::String(value.to_string()))
}

fn path(path: &Path) -> Option<toml::Value> {
    text(&path.display())
}

fn flag(flag: bool) -> Option<toml::Value> {
    Some(toml::Value::Boolean(flag))
}

fn number(number: impl Into<i64>) -> Option<toml::Value> {
    Some(toml::Value::Integer(number.into()))
}

fn list<T: ToString>(items: &[T]) -> Option<toml::Value> {
    Some(toml::Value::Array(items.iter().map(|item| toml::Value::String(item.to_string())).collect()))
}

/// Returns the effective configuration as a TOML file; unset keys are comments.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    let mut open_table = "";
    for key in KEYS {
        let (table, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if table != open_table {
            out.push_str(&format!("\n[{table}]\n"));
            open_table = table;
        }
        match (key.show)(config) {
            Some(value) => out.push_str(&format!("{name} = {value}\n")),
            None => out.push_str(&format!("# {name} is not set\n")),
        }
    }
    out
}

/// Returns the effective configuration as a JSON object.
pub fn to_json(config: &Config) -> String {
    let mut root = serde_json::Map::new();
    for key in KEYS {
        let value = serde_json::to_value((key.show)(config)).unwrap_or_default();
        match key.name.split_once('.') {
            None => {
                root.insert(key.name.to_owned(), value);
            }
            Some((table, name)) => {
                let table = root.entry(table).or_insert_with(|| serde_json::json!({}));
                if let Some(table) = table.as_object_mut() {
                    table.insert(name.to_owned(), value);
                }
            }
        }
    }
    serde_json::Value::Object(root).to_string()
}
