//! Defaults, precedence and the text of every error.

use std::path::PathBuf;

use super::*;
use kernel::money::Nano;

/// A temporary file that is removed when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path =
            std::env::temp_dir().join(format!("tollkeeper-config-{}-{number}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn from_environment(variables: &[(&str, &str)]) -> Result<Config, String> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load::load(None, Path::new("/nonexistent/tollkeeper.toml"), variables)
}

fn from_file(text: &str) -> Result<Config, String> {
    let file = TempFile::new(text);
    let shown = file.0.display().to_string();
    Config::load(Some(&file.0), []).map_err(|error| error.replace(&shown, "FILE"))
}

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

const DEFAULTS: &str = r#"listen = "127.0.0.1:8080"
service_listen = "127.0.0.1:8081"
# service_token is not set
data_dir = "./tollkeeper-data"
database_url = "sqlite://./tollkeeper-data/tollkeeper.db"
# database_replica_url is not set
database_replica_max_lag_seconds = 10
database_allow_fsync_off = false
# master_key is not set
master_key_file = "./tollkeeper-data/master.key"
# master_key_previous is not set
# master_key_previous_file is not set
public_url = "http://127.0.0.1:8080"
require_verified_email = false
registration = "open"
# catalog_file is not set
trusted_proxies = []
cors_origins = []
shutdown_grace_ms = 8000

[server]
head_timeout_seconds = 10
body_timeout_seconds = 30
write_timeout_seconds = 30
idle_timeout_seconds = 150
max_connections = 10000
body_budget_bytes = 134217728
body_bytes_per_second = 134217728
hsts_seconds = 0

[tls]
# certificate_file is not set
# key_file is not set
# service_certificate_file is not set
# service_key_file is not set

[mail]
url = "file"
from = "Tollkeeper <tollkeeper@localhost>"

[log]
format = "text"
level = "info"
access = true

[limits]
enabled = true
reads_per_minute = 1200
writes_per_minute = 600
logins_per_minute = 300
registrations_per_minute = 60
password_resets_per_hour = 5
login_failures = 10
login_failures_all_networks = 100
bad_credentials_per_minute = 600
verifications_per_hour = 5
mails_per_recipient_hour = 20
mails_per_account_hour = 200
mails_per_address_hour = 3600
organizations_per_person = 20
projects_per_organization = 200
open_invitations_per_organization = 200
api_keys_per_project = 1000
webhooks_per_organization = 10
password_changes_per_hour = 5
sessions_per_person = 50

[retention]
unverified_accounts_days = 30
audit_log_days = 400
mail_files_days = 30
webhook_deliveries_days = 30

[billing]
# credit_limit is not set
further_credit_limit = "0"
currency = "USD"
reservation_minutes = 10
gateway_reservation_seconds = 60
# issuer_name is not set
# issuer_address is not set

[api_keys]
management = "full"
prefix = "tk_"
keep_sealed = true
rotation_grace_hours = 24

[passwords]
hash_threads = HASH_THREADS
queue = 128

[sign_in]
passwords = true
totp = true
passkeys = true
require_second_factor = "operators"
fresh_minutes = 15
# providers_file is not set

[console]
enabled = true
idle_hours = 12
hsts = true
operator_addresses = []

[calls]
days = 30

[audit]
every_hours = 24

[exports]
# folder is not set
every_hours = 24
focus_version = "1.2"

[webhooks]
allow_private = false

[gateway]
allow_private_media = false
allow_browsers = false

[payments]
# stripe_secret_key_file is not set
# stripe_webhook_secret_file is not set
# stripe_api_url is not set
stripe_tax = false
# stripe_tax_code is not set
# minimum_amount is not set
# maximum_amount is not set

[telemetry]
# endpoint is not set
headers = []
sample_ratio = "0.1"
logs = false
"#;

#[test]
fn defaults_are_as_documented() {
    let config = from_environment(&[]).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let expected = DEFAULTS.replace("HASH_THREADS", &(cores - 1).max(1).to_string());
    assert_eq!(config.to_toml(), expected);
    // The output is valid input.
    assert_eq!(from_file(&expected).unwrap().to_toml(), expected);
}

#[test]
fn audit_log_days_is_0_or_at_least_90() {
    for (days, good) in
        [("0", true), ("1", false), ("89", false), ("90", true), ("36500", true), ("-1", false)]
    {
        let read = from_file(&format!("[retention]\naudit_log_days = {days}\n"));
        match read {
            Ok(config) => {
                assert_eq!((good, config.retention.audit_log_days.to_string().as_str()), (true, days));
            }
            Err(error) => {
                assert!(
                    !good && error.to_string().contains("expected 0 or a whole number from 90 to 36500"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn environment_overrides_file_and_file_overrides_defaults() {
    let file =
        TempFile::new("listen = \"0.0.0.0:1\"\n[limits]\nreads_per_minute = 5\nwrites_per_minute = 6\n");
    let environment = [("TOLLKEEPER_LIMITS__READS_PER_MINUTE".to_owned(), "7".to_owned())];
    for (named, default) in [(Some(file.0.as_path()), Path::new("/nonexistent")), (None, file.0.as_path())] {
        let config = load::load(named, default, environment.clone()).unwrap();
        assert_eq!(config.listen.to_string(), "0.0.0.0:1");
        assert_eq!((config.limits.reads_per_minute, config.limits.writes_per_minute), (7, 6));
        assert_eq!(config.limits.logins_per_minute, 300);
    }
}

#[test]
fn environment_variables_are_read() {
    let config = from_environment(&[
        ("TOLLKEEPER_LISTEN", "[::]:80"),
        ("TOLLKEEPER_SERVICE_LISTEN", "127.0.0.1:0"),
        ("TOLLKEEPER_SERVICE_TOKEN", "s3cret-of-the-listener"),
        ("TOLLKEEPER_DATA_DIR", "/var/lib/tollkeeper"),
        ("TOLLKEEPER_DATABASE_URL", "postgres://me:hunter2@db/toll"),
        ("TOLLKEEPER_MASTER_KEY", KEY),
        ("TOLLKEEPER_MAIL__URL", "smtp://me:hunter2@mail.example.com"),
        ("TOLLKEEPER_PUBLIC_URL", "https://keeper.example.com/"),
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "25.50"),
        ("TOLLKEEPER_CORS_ORIGINS", "https://a.example.com, https://b.example.com"),
        ("TOLLKEEPER_TRUSTED_PROXIES", "[\"10.0.0.0/8\", \"::1\"]"),
        ("TOLLKEEPER_BILLING__CURRENCY", "\"EUR\""),
        ("TOLLKEEPER_CONFIG", "/etc/tollkeeper.toml"),
        ("TOLLKEEPER_TEST_REQUIRE", "postgres"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    assert_eq!(config.listen.to_string(), "[::]:80");
    assert_eq!(config.service_token.as_ref().unwrap().expose(), "s3cret-of-the-listener");
    assert_eq!(
        config.database_url_or_default(),
        DatabaseUrl::Postgres("postgres://me:hunter2@db/toll".to_owned())
    );
    assert_eq!(config.master_key_bytes(), Some([0; 32]));
    assert_eq!(config.public_url(), "https://keeper.example.com");
    assert!(!config.limits.enabled);
    assert_eq!(config.billing.credit_limit, Some(Nano::from_units(25_500_000_000)));
    assert_eq!(config.billing.currency, "EUR");
    assert_eq!(config.cors_origins, ["https://a.example.com", "https://b.example.com"]);
    assert_eq!(config.trusted_proxies.len(), 2);

    for shown in [config.to_toml(), config.to_json(), format!("{config:?}")] {
        for secret in ["s3cret-of-the-listener", "hunter2", KEY] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("postgres://me:***@db/toll"), "{shown}");
    }
    for shown in [config.to_toml(), config.to_json()] {
        assert!(shown.contains("smtp://me:***@mail.example.com:587"), "{shown}");
    }
    let json: serde_json::Value = serde_json::from_str(&config.to_json()).unwrap();
    assert_eq!(json["limits"]["enabled"], false);
    assert_eq!(json["master_key"], "***");
    assert_eq!(json["master_key_file"], serde_json::Value::Null);
    assert_eq!(json["billing"]["credit_limit"], "25.5");
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table of cases")]
fn file_errors_name_file_line_key_and_expected_value() {
    let cases = [
        ("x = [", "FILE:1: this is not valid TOML: "),
        ("\nlisen = \"a\"", "FILE:2: unknown key `lisen` (did you mean `listen`?)"),
        ("[limit]\nenabled = true", "FILE:1: unknown key `limit` (did you mean `limits`?)"),
        (
            "[limits]\nenabled = true\nread_per_minute = 4",
            "FILE:3: unknown key `limits.read_per_minute` (did you mean `limits.reads_per_minute`?)",
        ),
        ("credit_limit = 5", "FILE:1: unknown key `credit_limit` (did you mean `billing.credit_limit`?)"),
        ("zebra = 5", "FILE:1: unknown key `zebra`"),
        ("mail = \"file\"", "FILE:1: `mail` is a table: write `[mail]` and its keys below"),
        ("log = [\"text\"]", "FILE:1: `log` is a table: write `[log]` and its keys below"),
        (
            "limits.reads_per_minute = 99999999999999999999",
            "FILE:1: `limits.reads_per_minute`: expected a whole number from 1 to 1000000",
        ),
        (
            "listen = \"localhost:8080\"",
            "FILE:1: `listen`: expected an IP address and a port such as \"127.0.0.1:8080\" or \"[::]:8080\"",
        ),
        ("[limits]\n\nenabled = \"yes\"", "FILE:3: `limits.enabled`: expected true or false"),
        (
            "limits.reads_per_minute = 0",
            "FILE:1: `limits.reads_per_minute`: expected a whole number from 1 to 1000000",
        ),
        (
            "limits.reads_per_minute = 1.5",
            "FILE:1: `limits.reads_per_minute`: expected a whole number from 1 to 1000000",
        ),
        (
            "billing.credit_limit = 25.50",
            "FILE:1: `billing.credit_limit`: expected an amount from 0 to 9223372036.854775807 such as 25 or \
             \"25.50\"; write it in quotes, so that it stays exact",
        ),
        (
            "billing.credit_limit = \"-1\"",
            "FILE:1: `billing.credit_limit`: expected an amount from 0 to 9223372036.854775807 such as 25 or \
             \"25.50\"",
        ),
        (
            "billing.credit_limit = \"1e3\"",
            "FILE:1: `billing.credit_limit`: expected an amount from 0 to 9223372036.854775807 such as 25 or \
             \"25.50\", with at most 9 digits after the point",
        ),
        (
            "billing.currency = \"usd\"",
            "FILE:1: `billing.currency`: expected a currency code of ISO 4217 such as \"USD\" (did you mean `USD`?)",
        ),
        (
            "billing.currency = \"XYZ\"",
            "FILE:1: `billing.currency`: expected a currency code of ISO 4217 such as \"USD\"",
        ),
        (
            "billing.issuer_name = \"two\\nlines\"",
            "FILE:1: `billing.issuer_name`: expected one line of 1 to 200 characters",
        ),
        (
            "mail.from = \"noreply\"",
            "FILE:1: `mail.from`: expected a sender such as \"Tollkeeper <noreply@example.com>\"",
        ),
        ("log.format = \"xml\"", "FILE:1: `log.format`: expected `text` or `json`"),
        (
            "log.level = \"inof\"",
            "FILE:1: `log.level`: expected off, error, warn, info, debug or trace, or a list such as \
             \"info,cluster=debug\"",
        ),
        (
            "api_keys.management = \"all\"",
            "FILE:1: `api_keys.management`: expected one of `full`, `read`, `none`",
        ),
        (
            "api_keys.prefix = \"tk\"",
            "FILE:1: `api_keys.prefix`: expected 1 to 20 letters, digits, `_` or `-`, a letter first and `_` or `-` \
             last, such as \"tk_\"",
        ),
        ("data_dir = \"\"", "FILE:1: `data_dir`: expected a path that is not empty"),
        (
            "public_url = \"example.com\"",
            "FILE:1: `public_url`: expected a URL such as \"https://api.example.com\", without login, query or \
             fragment",
        ),
        (
            "trusted_proxies = [\"10.0.0.1\", \"lan\"]",
            "FILE:1: `trusted_proxies`: expected a list of IP addresses or CIDR ranges such as [\"10.0.0.0/8\"]; \
             entry 2 is invalid",
        ),
        (
            "cors_origins = \"*\"",
            "FILE:1: `cors_origins`: expected a list of origins such as [\"https://app.example.com\"]; entry 1 is \
             invalid",
        ),
        (
            "listen = \"127.0.0.1:9\"\nservice_listen = \"127.0.0.1:9\"",
            "FILE:2: `service_listen`: expected an address other than `listen`: the service listener must \
             not be reachable there",
        ),
    ];
    for (text, expected) in cases {
        let error = from_file(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}\n{error}\n{expected}");
        if !expected.ends_with(' ') {
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn errors_hold_no_secret() {
    let both = format!("master_key = \"{KEY}\"\nmaster_key_file = \"k\"");
    let cases = [
        (
            "service_token = \"hunter2 hunter2\"",
            "FILE:1: `service_token`: expected a secret of at least 20 characters (for instance from `openssl rand -hex 24`): letters, digits and \
             ASCII signs, without spaces, at most 512",
        ),
        (
            "master_key = \"hunter2\"",
            "FILE:1: `master_key`: expected 32 random bytes in base64 (for instance from `openssl rand -base64 32`)",
        ),
        (
            "database_url = \"mysql://me:hunter2@db\"",
            "FILE:1: `database_url`: expected \"sqlite://PATH\" or \"postgres://USER:PASSWORD@HOST/NAME\"",
        ),
        (
            "mail.url = \"smtp://me:hunter2@mail:0\"",
            "FILE:1: `mail.url`: expected \"file\", \"smtp://USER:PASSWORD@HOST:587\" (STARTTLS), \
             \"smtps://USER:PASSWORD@HOST:465\" (TLS) or \"smtp://HOST:25?tls=none\"; the port is a number from 1 to 65535",
        ),
        (
            "mail.url = 25",
            "FILE:1: `mail.url`: expected \"file\", \"smtp://USER:PASSWORD@HOST:587\" (STARTTLS), \
             \"smtps://USER:PASSWORD@HOST:465\" (TLS) or \"smtp://HOST:25?tls=none\"",
        ),
        (
            "database_replica_url = \"sqlite://hunter2.db\"",
            "FILE:1: `database_replica_url`: expected \"postgres://USER:PASSWORD@HOST/NAME\" of a standby",
        ),
        (
            "database_replica_url = \"postgres://me:hunter2@db/toll\"",
            "FILE:1: `database_replica_url`: expected PostgreSQL in `database_url` as well: an SQLite file \
             has no replica",
        ),
        // A secret set under the wrong key.
        ("data_dir = [\"hunter2\"]", "FILE:1: `data_dir`: expected a path that is not empty"),
        ("log.format = \"hunter2\"", "FILE:1: `log.format`: expected `text` or `json`"),
        (&both, "FILE:1: `master_key`: expected either this or `master_key_file`, not both"),
    ];
    for (text, expected) in cases {
        assert_eq!(from_file(text).unwrap_err(), expected);
    }
}

#[test]
fn errors_name_the_variable() {
    let cases = [
        ("TOLLKEEPER_LISTN", "x", "unknown key (did you mean `TOLLKEEPER_LISTEN`?)"),
        ("TOLLKEEPER_LIMITS_ENABLED", "true", "unknown key (did you mean `TOLLKEEPER_LIMITS__ENABLED`?)"),
        ("TOLLKEEPER_MASTER_KYE", "hunter2", "unknown key (did you mean `TOLLKEEPER_MASTER_KEY`?)"),
        ("TOLLKEEPER_PORT", "8080", "unknown key"),
        ("TOLLKEEPER_LIMITS__ENABLED", "maybe", "`limits.enabled`: expected true or false"),
        (
            "TOLLKEEPER_MASTER_KEY",
            "hunter2",
            "`master_key`: expected 32 random bytes in base64 (for instance from `openssl rand -base64 32`)",
        ),
        (
            "TOLLKEEPER_MAIL__URL",
            "",
            "`mail.url`: expected \"file\", \"smtp://USER:PASSWORD@HOST:587\" (STARTTLS), \
             \"smtps://USER:PASSWORD@HOST:465\" (TLS) or \"smtp://HOST:25?tls=none\"",
        ),
    ];
    for (name, value, expected) in cases {
        let error = from_environment(&[(name, value)]).unwrap_err();
        assert_eq!(error.to_string(), format!("environment variable {name}: {expected}"));
    }
    assert!(from_environment(&[("TOLLKEEPER_CORS_ORIGINS", "")]).unwrap().cors_origins.is_empty());
}

#[test]
fn kubernetes_service_links_are_ignored() {
    let links = [
        ("TOLLKEEPER_SERVICE_HOST", "10.0.0.5"),
        ("TOLLKEEPER_SERVICE_PORT", "8080"),
        ("TOLLKEEPER_SERVICE_PORT_HTTP", "8080"),
        ("TOLLKEEPER_PORT", "tcp://10.0.0.5:8080"),
        ("TOLLKEEPER_PORT_8080_TCP", "tcp://10.0.0.5:8080"),
        ("TOLLKEEPER_PORT_8080_TCP_ADDR", "10.0.0.5"),
        ("TOLLKEEPER_PORT_8080_TCP_PORT", "8080"),
        ("TOLLKEEPER_PORT_8080_TCP_PROTO", "tcp"),
    ];
    assert!(from_environment(&links).is_ok());
    let typo = [links[0], ("TOLLKEEPER_LISTN", "127.0.0.1:1")];
    assert!(from_environment(&typo).is_err());
}

#[test]
fn missing_file_is_an_error() {
    let missing = Config::load(Some(Path::new("/nonexistent/x.toml")), []).unwrap_err();
    assert!(missing.starts_with("/nonexistent/x.toml: the file can't be read: "), "{missing}");
}

#[test]
fn wrong_value_is_an_error_although_a_variable_replaces_it() {
    let file = TempFile::new("[limits]\nwrites_per_minute = 0");
    let variable = ("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE".to_owned(), "1".to_owned());
    let error = Config::load(Some(&file.0), [variable]).unwrap_err();
    assert!(error.contains(":2: `limits.writes_per_minute`: expected a whole number"), "{error}");
}

#[test]
fn certificate_needs_its_key_and_makes_links_https() {
    let half = |set: &str, missing: &str| {
        let error = from_environment(&[(&variable(set), "x.pem")]).unwrap_err().to_string();
        let expected = format!(
            "environment variable {}: `{set}`: expected `{missing}` as well: TLS needs both files",
            variable(set)
        );
        assert_eq!(error, expected);
    };
    half("tls.certificate_file", "tls.key_file");
    half("tls.key_file", "tls.certificate_file");
    half("tls.service_certificate_file", "tls.service_key_file");
    half("tls.service_key_file", "tls.service_certificate_file");
    let public = [("TOLLKEEPER_TLS__CERTIFICATE_FILE", "c.pem"), ("TOLLKEEPER_TLS__KEY_FILE", "k.pem")];
    assert_eq!(from_environment(&public).unwrap().public_url(), "https://127.0.0.1:8080");
    let service = [
        ("TOLLKEEPER_TLS__SERVICE_CERTIFICATE_FILE", "c.pem"),
        ("TOLLKEEPER_TLS__SERVICE_KEY_FILE", "k.pem"),
    ];
    assert_eq!(from_environment(&service).unwrap().public_url(), "http://127.0.0.1:8080");
}

#[test]
fn tax_needs_payments_at_stripe() {
    let cases = [
        (
            "[payments]\nstripe_tax = true",
            "FILE:2: `payments.stripe_tax`: expected `payments.stripe_secret_key_file` as well: online payments \
             are off without it",
        ),
        (
            "[payments]\nstripe_secret_key_file = \"/k\"\nstripe_webhook_secret_file = \"/s\"\nstripe_tax_code = \"txcd_10103001\"",
            "FILE:4: `payments.stripe_tax_code`: expected `payments.stripe_tax = true` as well: no tax \
             is calculated without it",
        ),
        (
            "[payments]\nstripe_tax_code = \"saas\"",
            "FILE:2: `payments.stripe_tax_code`: expected a tax code of Stripe such as \"txcd_10103001\"",
        ),
    ];
    for (text, expected) in cases {
        let error = from_file(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let good = "[payments]\nstripe_secret_key_file = \"/k\"\nstripe_webhook_secret_file = \"/s\"\nstripe_tax = true\nstripe_tax_code = \"txcd_10103001\"";
    let payments = from_file(good).unwrap().payments;
    assert_eq!((payments.stripe_tax, payments.stripe_tax_code.as_deref()), (true, Some("txcd_10103001")));
}
