//! Readers from a TOML value to the type of a key. An error says what was expected. The caller adds the value
//! that was found, unless it is a secret.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;
use lettre::message::Mailbox;
use tracing_subscriber::EnvFilter;

use super::types::{self, DatabaseUrl, Header, PublicUrl};
use super::{LogFormat, Management};
use document::Value;
use document::values::{expected, from_text, text};
use kernel::money::Decimal;
use kernel::proxies;
use kernel::secrets::{Secret, files};
use mail::MailUrl;

pub use document::values::{Read, boolean, currency, decimal, whole};

/// Reads 0, or a whole number within the range.
pub fn zero_or_whole<T: TryFrom<i64>>(value: &Value, range: RangeInclusive<i64>) -> Read<T> {
    let number = match value {
        Value::Integer(number) if *number == 0 || range.contains(number) => T::try_from(*number).ok(),
        _ => None,
    };
    number.ok_or_else(|| format!("expected 0 or a whole number from {} to {}", range.start(), range.end()))
}

/// Reads an amount of money that isn't negative and fits the database.
pub fn amount<const SCALE: u32>(value: &Value) -> Read<Decimal<SCALE>> {
    let what = "an amount such as 25 or \"25.50\"";
    let amount: Decimal<SCALE> = decimal(value, what)?;
    if amount < Decimal::ZERO || amount.to_i64().is_none() {
        return Err(format!(
            "expected {what}, not negative and at most {}",
            Decimal::<SCALE>::from_units(i64::MAX.into())
        ));
    }
    Ok(amount)
}

/// Reads an IP address and a port.
pub fn socket(value: &Value) -> Read<SocketAddr> {
    from_text(value, "an IP address and a port such as \"127.0.0.1:8080\" or \"[::]:8080\"", |t| {
        t.parse().ok()
    })
}

/// Reads the path of a file or folder.
pub fn path(value: &Value) -> Read<PathBuf> {
    from_text(value, "a path that is not empty", |t| (!t.is_empty()).then(|| PathBuf::from(t)))
}

/// Reads the path of a key file. A key in place of the path is refused, because paths are shown.
pub fn key_path(value: &Value) -> Read<PathBuf> {
    if let Value::Text(text) = value
        && types::decode_master_key(text).is_some()
    {
        return expected("the path of a file, not the key itself");
    }
    path(value)
}

/// Reads a bearer token: visible ASCII characters, as a header requires.
pub fn token(value: &Value) -> Read<Secret> {
    let text = text(value, files::SERVICE_TOKEN_RULE)?;
    files::service_token(text).map_err(|problem| format!("expected {problem}"))
}

/// Reads the master key.
pub fn master_key(value: &Value) -> Read<Secret> {
    from_text(value, "32 random bytes in base64 (for instance from `openssl rand -base64 32`)", |t| {
        types::decode_master_key(t).map(|_| Secret::new(t.to_owned()))
    })
}

/// Reads the URL of the database.
pub fn database(value: &Value) -> Read<DatabaseUrl> {
    from_text(value, "\"sqlite://PATH\" or \"postgres://USER:PASSWORD@HOST/NAME\"", DatabaseUrl::parse)
}

/// Reads the URL of a standby.
pub fn replica(value: &Value) -> Read<DatabaseUrl> {
    from_text(value, "\"postgres://USER:PASSWORD@HOST/NAME\" of a standby", |t| {
        DatabaseUrl::parse(t).filter(|url| matches!(url, DatabaseUrl::Postgres(_)))
    })
}

/// Reads a base URL.
pub fn public_url(value: &Value) -> Read<PublicUrl> {
    from_text(
        value,
        "a URL such as \"https://api.example.com\", without login, query or fragment",
        PublicUrl::parse,
    )
}

/// Reads the destination of mails.
pub fn mail_url(value: &Value) -> Read<MailUrl> {
    match value {
        Value::Text(text) => MailUrl::parse(text),
        _ => MailUrl::parse(""),
    }
}

/// Reads the sender of mails.
pub fn mailbox(value: &Value) -> Read<String> {
    from_text(value, "a sender such as \"Tollkeeper <noreply@example.com>\"", |t| {
        t.parse::<Mailbox>().ok().map(|_| t.to_owned())
    })
}

/// Reads the format of the log.
pub fn log_format(value: &Value) -> Read<LogFormat> {
    from_text(value, "\"text\" or \"json\"", |t| {
        [LogFormat::Text, LogFormat::Json].into_iter().find(|format| format.as_str() == t)
    })
}

/// Reads the levels of the log. `EnvFilter` takes any bare word as a target, so that a misspelt level would
/// silence everything else. Here a bare word must be a level.
pub fn log_level(value: &Value) -> Read<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let what = "off, error, warn, info, debug or trace, or a list such as \"info,cluster=debug\"";
    from_text(value, what, |t| {
        let known = |part: &str| {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
            LEVELS.contains(&level.to_ascii_lowercase().as_str())
        };
        let fits = t.split(',').all(known) && EnvFilter::builder().parse(t).is_ok();
        fits.then(|| t.to_owned())
    })
}

/// Reads what API keys may manage.
pub fn management(value: &Value) -> Read<Management> {
    from_text(value, "\"full\", \"read\" or \"none\"", |t| {
        [Management::Full, Management::Read, Management::None].into_iter().find(|m| m.as_str() == t)
    })
}

/// Reads the prefix of API keys.
pub fn key_prefix(value: &Value) -> Read<String> {
    let what = "1 to 20 letters, digits, `_` or `-`, a letter first and `_` or `-` last, such as \"tk_\"";
    from_text(value, what, |t| {
        let letters = t.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let ends = t.starts_with(|c: char| c.is_ascii_alphabetic()) && t.ends_with(['_', '-']);
        (letters && ends && t.len() <= 20).then(|| t.to_owned())
    })
}

/// Reads the name on invoices: one line.
pub fn line(value: &Value) -> Read<String> {
    from_text(value, "one line of 1 to 200 characters", |t| {
        let fits = !t.trim().is_empty() && t.chars().count() <= 200 && !t.chars().any(char::is_control);
        fits.then(|| t.trim().to_owned())
    })
}

/// Reads the address on invoices: up to 10 lines.
pub fn lines(value: &Value) -> Read<String> {
    from_text(value, "1 to 10 lines, together at most 1000 characters", |t| {
        let plain = !t.chars().any(|c| c.is_control() && c != '\n');
        let fits =
            plain && !t.trim().is_empty() && t.chars().count() <= 1_000 && t.trim().lines().count() <= 10;
        fits.then(|| t.trim().to_owned())
    })
}

/// Reads IP addresses and ranges.
pub fn ranges(value: &Value) -> Read<Vec<IpNet>> {
    list(value, "a list of IP addresses or CIDR ranges such as [\"10.0.0.0/8\"]", proxies::parse_range)
}

/// Reads origins of web pages.
pub fn origins(value: &Value) -> Read<Vec<String>> {
    list(value, "a list of origins such as [\"https://app.example.com\"]", types::parse_origin)
}

/// Reads a ratio from 0 to 1.
pub fn ratio(value: &Value) -> Read<Decimal<6>> {
    let what = "a part such as \"0.01\", from 0 to 1";
    let ratio: Decimal<6> = decimal(value, what)?;
    if (0..=1_000_000).contains(&ratio.units()) { Ok(ratio) } else { expected(what) }
}

/// Reads headers, each as `name=value`.
pub fn headers(value: &Value) -> Read<Vec<Header>> {
    list(value, "a list of headers such as [\"x-api-key=SECRET\"]", Header::parse)
}

/// Reads a list of strings, or one string separated by commas.
fn list<T>(value: &Value, what: &str, read: impl Fn(&str) -> Option<T>) -> Read<Vec<T>> {
    let items: Vec<&str> = match value {
        Value::Text(text) if text.trim().is_empty() => Vec::new(),
        Value::Text(text) => text.split(',').map(str::trim).collect(),
        Value::List(nodes) => nodes.iter().map(|node| self::text(&node.value, what)).collect::<Read<_>>()?,
        _ => return expected(what),
    };
    let one = |(index, item): (usize, &str)| {
        read(item).ok_or_else(|| format!("expected {what}; entry {} is none", index + 1))
    };
    items.into_iter().enumerate().map(one).collect()
}
