//! Types of keys used only by the configuration. They check a value, describe what is expected, and show no
//! secrets.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use ipnet::IpNet;
use kernel::document::values::{list, path, text, whole};
use kernel::proxies::parse_range;
use kernel::secrets::{HIDDEN, Secret, files};
use kernel::urls::parse_origin;

pub use kernel::urls::PublicUrl;
pub use telemetry::Header;

/// Reads an IP address and a port.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let what = "an IP address and a port such as \"127.0.0.1:8080\" or \"[::]:8080\"";
    text(deserializer, what, |text| text.parse().ok())
}

/// Reads a bearer token: visible ASCII characters, as a header requires.
pub fn service_token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    text(deserializer, files::SERVICE_TOKEN_RULE, |text| files::service_token(text).ok().map(Some))
}

/// Reads 32 bytes in base64.
pub fn master_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    let what = "32 random bytes in base64 (for instance from `openssl rand -base64 32`)";
    text(deserializer, what, |text| decode_master_key(text).map(|_| Some(Secret::new(text))))
}

/// Reads the path of a key file. Rejects a key given instead of a path, because paths are shown.
pub fn key_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    match path(deserializer)? {
        Some::<PathBuf>(path) if path.to_str().and_then(decode_master_key).is_some() => {
            Err(serde::de::Error::custom("expected the path of a file, not the key itself"))
        }
        path => Ok(path),
    }
}

/// Reads the URL of a standby.
pub fn replica<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DatabaseUrl>, D::Error> {
    text(deserializer, "\"postgres://USER:PASSWORD@HOST/NAME\" of a standby", |text| {
        DatabaseUrl::parse(text).filter(|url| matches!(url, DatabaseUrl::Postgres(_))).map(Some)
    })
}

/// Reads 0, or the retention of audit entries in days: database triggers keep them for at least 90.
pub fn audit_log_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let days = whole::<0, 36_500, _, _>(deserializer).ok().filter(|days| *days == 0 || *days >= 90);
    days.ok_or_else(|| serde::de::Error::custom("expected 0 or a whole number from 90 to 36500"))
}

/// Reads origins of web pages.
pub fn origins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    list(deserializer, "a list of origins such as [\"https://app.example.com\"]", parse_origin)
}

/// Reads IP addresses and ranges.
pub fn ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    list(deserializer, "a list of IP addresses or CIDR ranges such as [\"10.0.0.0/8\"]", parse_range)
}

/// Decodes 32 bytes in base64, standard or URL-safe, with or without padding.
pub fn decode_master_key(text: &str) -> Option<[u8; 32]> {
    files::key_from_base64(text.as_bytes())
}

/// The address of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// An SQLite file.
    Sqlite(PathBuf),
    /// The full URL of a PostgreSQL server, including its password.
    Postgres(String),
}

impl DatabaseUrl {
    /// Parses `sqlite://PATH` or `postgres://…`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("sqlite://") {
            // SQLite gives these a special meaning that separate connections wouldn't share.
            let plain = !path.is_empty() && !path.starts_with(':') && !path.contains('?');
            return plain.then(|| Self::Sqlite(PathBuf::from(path)));
        }
        let server = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"))?;
        (!server.is_empty()).then(|| Self::Postgres(text.to_owned()))
    }
}

impl DatabaseUrl {
    /// Returns the URL for a libpq program: without the password, parameters that may contain one, and our
    /// own parameters.
    pub fn for_libpq(&self) -> String {
        let shown = self.to_string();
        let (place, query) = shown.split_once('?').map_or((shown.as_str(), None), |(p, q)| (p, Some(q)));
        let place = place.replacen(&format!(":{HIDDEN}@"), "@", 1);
        let hidden = format!("={HIDDEN}");
        let is_kept = |parameter: &&str| {
            !parameter.is_empty() && !parameter.ends_with(&hidden) && !parameter.starts_with("pool_mode=")
        };
        let kept: Vec<_> = query.unwrap_or_default().split('&').filter(is_kept).collect();
        if kept.is_empty() { place } else { format!("{place}?{}", kept.join("&")) }
    }
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, "\"sqlite://PATH\" or \"postgres://USER:PASSWORD@HOST/NAME\"", Self::parse)
    }
}

/// Writes the URL without its password.
impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Shows the URL without its password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(url) => f.write_str(&redacted(url)),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Query parameters of a PostgreSQL URL that don't contain secrets. The values of others are hidden.
const PUBLIC_PARAMETERS: [&str; 12] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "pool_mode",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

/// Returns the URL with `***` in place of its password.
fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.to_owned() };
    // The last `@` ends the password, even one that holds an unescaped `/`, `?` or `@`.
    let (login, server) = match rest.rsplit_once('@') {
        Some((login, server)) => (Some(login), server),
        None => (None, rest),
    };
    let mut shown = format!("{scheme}://");
    match login.map(|login| login.split_once(':')) {
        Some(Some((user, _))) => shown.push_str(&format!("{user}:{HIDDEN}@")),
        Some(None) => shown.push_str(&format!("{}@", login.unwrap_or_default())),
        None => {}
    }
    let (place, query) = server.split_once('?').map_or((server, None), |(p, q)| (p, Some(q)));
    shown.push_str(place);
    for (index, parameter) in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()).enumerate() {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        shown.push(if index == 0 { '?' } else { '&' });
        if PUBLIC_PARAMETERS.contains(&name) {
            shown.push_str(parameter);
        } else {
            shown.push_str(&format!("{name}={HIDDEN}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_passwords_are_hidden() {
        let cases = [
            ("postgres://host/db", "postgres://host/db"),
            ("postgres://me@host/db", "postgres://me@host/db"),
            (
                "postgres://me:hunter2@host:5432/db?sslmode=require",
                "postgres://me:***@host:5432/db?sslmode=require",
            ),
            ("postgresql://me:hun/ter2@host/db", "postgresql://me:***@host/db"),
            ("postgres://me:hun@ter2@host/db", "postgres://me:***@host/db"),
            ("postgres://me:hun?ter2@host/db", "postgres://me:***@host/db"),
            ("postgres://host/db?password=hunter2&user=me", "postgres://host/db?password=***&user=me"),
            ("postgres://host/db?p%61ssword=hunter2", "postgres://host/db?p%61ssword=***"),
            ("postgres:///db?host=/run/pg&options=hunter2", "postgres:///db?host=/run/pg&options=***"),
        ];
        for (url, shown) in cases {
            let parsed = DatabaseUrl::parse(url).unwrap();
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(format!("{parsed:?}"), shown);
            assert_eq!(parsed, DatabaseUrl::Postgres(url.to_owned()));
        }
    }

    #[test]
    fn url_passwords_can_be_left_out() {
        let cases = [
            ("postgres://host/db", "postgres://host/db"),
            ("postgres://me:hunter2@host:5432/db", "postgres://me@host:5432/db"),
            ("postgresql://me:hun@t/er?2@host/db?sslmode=disable", "postgresql://me@host/db?sslmode=disable"),
            ("postgres://host/db?password=hunter2&user=me&options=x", "postgres://host/db?user=me"),
            ("postgres://host/db?password=hunter2", "postgres://host/db"),
            ("postgres://host/db?pool_mode=transaction&port=1", "postgres://host/db?port=1"),
        ];
        for (url, shown) in cases {
            assert_eq!(DatabaseUrl::parse(url).unwrap().for_libpq(), shown);
        }
    }

    #[test]
    fn database_is_a_file_or_a_server() {
        let sqlite = |text| match DatabaseUrl::parse(text) {
            Some(DatabaseUrl::Sqlite(path)) => Some(path.display().to_string()),
            _ => None,
        };
        assert_eq!(sqlite("sqlite://data/t.db").as_deref(), Some("data/t.db"));
        assert_eq!(sqlite("sqlite:///var/lib/t.db").as_deref(), Some("/var/lib/t.db"));
        let bad = [
            "",
            "t.db",
            "sqlite:t.db",
            "sqlite://",
            "sqlite://:memory:",
            "sqlite://a?mode=ro",
            "mysql://h",
            "postgres://",
        ];
        for text in bad {
            assert_eq!(DatabaseUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn master_key_is_32_bytes_in_any_base64() {
        let standard = "//////////////////////////////////////////8=";
        for text in [standard, standard.trim_end_matches('='), &standard.replace('/', "_")] {
            assert_eq!(decode_master_key(text), Some([0xff; 32]), "{text}");
        }
        for bad in ["", "AAAA", "not base64!", &"A".repeat(64)] {
            assert_eq!(decode_master_key(bad), None, "{bad}");
        }
    }
}
