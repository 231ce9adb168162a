//! Insecure settings that the server refuses or warns of when it starts, such as open files and folders.
//! Error messages must never show a secret.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use tollkeeper::config::{Config, names, variable};

use support::process::{ProcessResult, Start, free_addresses, until};
use support::world::CREDIT_LIMIT;
use support::world::Folder;

const CANARY: &str = "hunter2CANARYhunter2";

/// Returns values that are invalid for most keys. They have a secret in all parts where URLs, lists and
/// copying mistakes may have one.
fn invalid_values() -> Vec<String> {
    let mut values = vec![
        CANARY.to_owned(),
        format!("{CANARY}:8080"),
        format!("https://user:{CANARY}@host.example/"),
        format!("https://{CANARY}@host.example"),
        format!("https://{CANARY}:{CANARY}@host.example:port"),
        format!("https://host.example/?api_key={CANARY}"),
        format!("https://host.example/#{CANARY}"),
        format!("HTTPS://host.example/a b?{CANARY}"),
        format!("user:{CANARY}@host.example"),
        format!("postgres://me:{CANARY}@:::/db?password={CANARY}&sslmode={CANARY}"),
        format!("postgres://me:{CANARY}@host/db?sslkey={CANARY}"),
        format!("sqlite://:{CANARY}"),
        format!("smtp://me:{CANARY}@"),
        format!("smtps://me:{CANARY}@host:99999/?{CANARY}"),
        format!("[\"https://me:{CANARY}@app.example.com\"]"),
        format!("x-api-key {CANARY}"),
        format!("10.0.0.0/8,{CANARY}"),
        format!("info,{CANARY}=loud"),
        format!("Name {CANARY} <broken"),
        format!("\u{1}{CANARY}"),
        "5".repeat(200) + CANARY,
    ];
    values.extend((0..3).map(|cut| CANARY[cut..].to_owned()));
    values
}

/// Returns `true` if a text shows a part of the canary. Parts of less than eight characters are ignored,
/// because our own texts may contain them by chance.
fn shows_canary(text: &str) -> bool {
    (0..=CANARY.len() - 8).any(|start| text.contains(&CANARY[start..start + 8]))
}

#[test]
fn error_messages_show_no_secret() {
    let folder = Folder::new();
    let mut refused = 0;
    for key in names() {
        for value in invalid_values() {
            let by_variable = Config::load(None, [(variable(key), value.clone())]);
            let (table, name) = key.split_once('.').unwrap_or(("", key));
            let table = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
            let file = folder.0.join("broken.toml");
            let quoted = toml::Value::String(value.clone());
            std::fs::write(&file, format!("{table}{name} = {quoted}\n")).unwrap();
            for loaded in [by_variable, Config::load(Some(&file), [])] {
                if let Err(error) = loaded {
                    refused += 1;
                    assert!(!shows_canary(&error.to_string()), "{key} = {value:?}: {error}");
                    assert!(!shows_canary(&format!("{error:?}")), "{key} = {value:?}: {error:?}");
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused} were refused");
}

#[test]
fn shown_configuration_hides_secrets() {
    let folder = Folder::new();
    for (key, value) in [
        ("service_token", format!("svc_{CANARY}")),
        ("database_url", format!("postgres://me:{CANARY}@host/db?password={CANARY}")),
        ("database_url", format!("postgres://host/db?user=me&password={CANARY}")),
        ("database_replica_url", format!("postgres://me:{CANARY}@host/db")),
        ("mail.url", format!("smtp://me:{CANARY}@host:587")),
        ("telemetry.headers", format!("x-api-key={CANARY}")),
        ("public_url", "https://keeper.example.com".to_owned()),
    ] {
        let mut start = Start::new(&folder.0).set(&variable(key), &value);
        if key == "database_replica_url" {
            start = start.set("TOLLKEEPER_DATABASE_URL", "postgres://host/db");
        }
        for arguments in [&["config"][..], &["config", "--json"]] {
            let ended = start.command(arguments);
            assert_eq!(ended.code, Some(0), "{key}: {}", ended.log);
            assert!(!shows_canary(&ended.stdout) && !shows_canary(&ended.log), "{key}: {}", ended.stdout);
        }
    }
}

/// All services that the server uses with a secret are down, so it logs as much as possible.
#[test]
fn running_server_logs_no_secret_of_its_configuration() {
    let folder = Folder::new();
    let (closed, other) = free_addresses();
    let start = Start::new(&folder.0)
        .set("TOLLKEEPER_LOG__LEVEL", "trace")
        .set("TOLLKEEPER_SERVICE_TOKEN", &format!("svc_{CANARY}"))
        .set("TOLLKEEPER_MAIL__URL", &format!("smtp://me:{CANARY}@{closed}"))
        .set("TOLLKEEPER_TELEMETRY__ENDPOINT", &format!("http://{closed}"))
        .set("TOLLKEEPER_TELEMETRY__HEADERS", &format!("x-api-key={CANARY}"))
        .set("TOLLKEEPER_TELEMETRY__SAMPLE_RATIO", "1");
    let server = start.run();
    let ada = json!({"email": "ada@example.com", "username": "ada", "password": format!("Aa1-{CANARY}")});
    server.post("/v1/auth/register", &ada).data();
    let wrong = json!({"email": "ada@example.com", "password": format!("Bb2-{CANARY}")});
    assert_eq!(server.post("/v1/auth/login", &wrong).send().status, 401);
    assert_eq!(server.get("/v1/auth/me").bearer(CANARY).send().status, 401);
    assert_eq!(server.ask("/service/v1/usage", &json!({"events": []})).send().status, 400);
    server.wait_for_log("sending an e-mail failed");
    server.wait_for_log("traces");
    let ended = server.stop();
    assert!(!shows_canary(&ended.log) && !shows_canary(&ended.stdout), "{}", ended.log);

    let url = format!("postgres://me:{CANARY}@{closed},{other}/db?sslmode=disable");
    let replica = format!("postgres://me:{CANARY}@{other}/db?sslmode=disable");
    let unready = Start::new(&folder.0)
        .set("TOLLKEEPER_LOG__LEVEL", "trace")
        .set("TOLLKEEPER_DATABASE_URL", &url)
        .set("TOLLKEEPER_DATABASE_REPLICA_URL", &replica);
    let server = unready.listening();
    server.wait_for_log("database");
    assert_eq!(server.get("/readyz").send().status, 503);
    let ended = server.stop();
    assert!(!shows_canary(&ended.log), "{}", ended.log);
}

/// A wrong value may be a secret that was set for the wrong key. So errors show the key and the valid values,
/// but not the value.
#[test]
fn mistyped_value_is_not_repeated() {
    for (name, value, expected) in [
        ("TOLLKEEPER_LIMITS__ENABLED", "hunter2", "`limits.enabled`: expected true or false"),
        ("TOLLKEEPER_LISTEN", "hunter2:8080", "`listen`: expected an IP address and a port"),
        ("TOLLKEEPER_PUBLIC_URL", "https://me:hunter2@keeper.example.com", "`public_url`: expected a URL"),
        ("TOLLKEEPER_SERVER__MAX_CONNECTIONS", "-2", "`server.max_connections`: expected a whole number"),
        ("TOLLKEEPER_BILLING__CURRENCY", "hunter2", "`billing.currency`: expected a currency code"),
    ] {
        let complaint = Config::load(None, [(name.to_owned(), value.to_owned())]).unwrap_err().to_string();
        assert!(complaint.starts_with(&format!("environment variable {name}: {expected}")), "{complaint}");
        assert!(!complaint.contains(value) && !complaint.contains("hunter2"), "{complaint}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn data_folder_writable_by_others_is_refused() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    std::fs::create_dir(start.data_dir()).unwrap();
    for open in [0o777, 0o702, 0o1777] {
        set_mode(&start.data_dir(), open);
        for ended in [start.refused(), start.command(&["migrate"]), start.command(&["signing-key", "rotate"])]
        {
            let ProcessResult { code, log, .. } = ended;
            assert_eq!(code, Some(1), "{open:o}: {log}");
            let path = start.data_dir().display().to_string();
            for word in [path.as_str(), "`data_dir`", "chmod 700", &format!("mode {open:o}")] {
                assert!(log.contains(word), "no {word} in {log}");
            }
        }
        assert_eq!(std::fs::read_dir(start.data_dir()).unwrap().count(), 0, "nothing was written to it");
    }
    // Kubernetes volumes and many other folders belong to a group of their own, so the server only warns of
    // these modes.
    for readable in [0o755, 0o750, 0o711, 0o2770] {
        set_mode(&start.data_dir(), readable);
        let server = start.run();
        assert!(server.log().contains("chmod 700"), "{readable:o}: {}", server.log());
        server.stop();
    }
    set_mode(&start.data_dir(), 0o700);
    assert!(!start.run().stop().log.contains("chmod"), "a private folder needs no warning");
}

#[test]
fn files_in_the_data_folder_ignore_the_umask() {
    let folder = Folder::new();
    let start = Start::new(&folder.0).through(&["sh", "-c", "umask 0; exec \"$0\" \"$@\""]);
    let server = start.run();
    server.sign_up("ada");
    assert_eq!(mode(&start.data_dir()), 0o700);
    let lock = start.data_dir().join("tollkeeper.db.migrate-lock");
    assert!(lock.exists());
    for entry in std::fs::read_dir(start.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    server.stop();
    // The server restricts a file that an earlier version left readable.
    set_mode(&lock, 0o666);
    start.run().stop();
    assert_eq!(mode(&lock), 0o600);
}

#[test]
fn readable_tls_key_causes_a_warning() {
    let folder = Folder::new();
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        return support::python::skip("the mode of a TLS key", "`openssl` is not installed");
    }
    support::smtp::make_certificates(&folder.0);
    let (certificate, key) = (folder.0.join("server.pem"), folder.0.join("server.key"));
    let start = Start::new(&folder.0)
        .set("TOLLKEEPER_TLS__SERVICE_CERTIFICATE_FILE", certificate.to_str().unwrap())
        .set("TOLLKEEPER_TLS__SERVICE_KEY_FILE", key.to_str().unwrap());
    for (bits, warned) in [(0o644, true), (0o640, true), (0o600, false), (0o400, false)] {
        set_mode(&key, bits);
        let server = start.listening();
        let ended = server.stop();
        let lines: Vec<_> =
            ended.log.lines().filter(|line| line.contains(" WARN ") && line.contains("server.key")).collect();
        assert_eq!(lines.len(), usize::from(warned), "{bits:o}: {}", ended.log);
        assert!(
            lines.iter().all(|line| line.contains("`tls.service_key_file`") && line.contains("chmod 600")),
            "{lines:?}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn crash_writes_no_core_dump() {
    let folder = Folder::new();
    let server = Start::new(&folder.0)
        .through(&["sh", "-c", "ulimit -c unlimited 2>/dev/null; exec \"$0\" \"$@\""])
        .run();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(4).take(2).collect();
    // With a limit of one byte, no file is written and no handler is called. With a limit of zero, a handler
    // would be called.
    assert_eq!(numbers, ["1", "1"], "{line}");
    // The metrics of the process still work.
    let text = support::process::Wire::new(server.service, "GET", "/metrics")
        .bearer(&server.service_token())
        .send()
        .text;
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"] {
        assert!(text.contains(&format!("\n{name} ")), "no {name}");
    }
}

/// Returns the warnings that a server with these settings logs until it listens or waits for its database.
fn warnings(settings: &[(&str, &str)]) -> Vec<String> {
    let folder = Folder::new();
    let public: Vec<_> = settings.iter().filter(|(name, _)| name.contains("LISTEN")).collect();
    let mut words = vec!["env".to_owned()];
    words.extend(public.iter().map(|(name, value)| format!("{name}={value}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The limit on open files may be lower here than a server needs, which would cause another warning.
    let mut start = Start::new(&folder.0).through(&words).set("TOLLKEEPER_SERVER__MAX_CONNECTIONS", "100");
    for (name, value) in settings {
        start = start.set(name, value);
    }
    let server = start.launch();
    assert!(
        until(|| server.log().contains("listening") || server.log().contains("waiting for the database")),
        "{}",
        server.log()
    );
    let log = server.kill().log;
    let is_warning = |line: &&str| line.contains(" WARN ") && !line.contains("the built-in demo");
    log.lines().filter(is_warning).map(str::to_owned).collect()
}

const POSTGRES: &str = "without sslmode";

#[test]
fn unverified_remote_database_causes_a_warning() {
    let warned = |url: &str| {
        let lines = warnings(&[("TOLLKEEPER_DATABASE_URL", url)]);
        lines.into_iter().filter(|line| line.contains(POSTGRES)).collect::<Vec<_>>()
    };
    for url in ["postgres://me:hunter2@192.0.2.1/db", "postgresql://me:hunter2@127.0.0.1,db.invalid/db"] {
        let lines = warned(url);
        assert_eq!(lines.len(), 1, "{url}: {lines:?}");
        for word in ["`database_url`", "sslmode=verify-full", "sslrootcert"] {
            assert!(lines[0].contains(word), "no {word} in {}", lines[0]);
        }
        assert!(!lines[0].contains("hunter2"), "{}", lines[0]);
    }
    for url in [
        "postgres://me@127.0.0.1:1/db",
        "postgres://me@[::1]:1/db",
        "postgres://me@localhost:1/db",
        "postgres://me@%2Fnowhere/db",
        "postgres://me@192.0.2.1/db?sslmode=require",
        "postgres://me@192.0.2.1/db?sslmode=disable",
    ] {
        assert_eq!(warned(url), Vec::<String>::new(), "{url}");
    }
    let replica = warnings(&[
        ("TOLLKEEPER_DATABASE_URL", "postgres://me@127.0.0.1:1/db"),
        ("TOLLKEEPER_DATABASE_REPLICA_URL", "postgres://me@192.0.2.1/db"),
    ]);
    assert!(
        replica.iter().any(|line| line.contains(POSTGRES) && line.contains("`database_replica_url`")),
        "{replica:?}"
    );
}

#[test]
fn public_server_warns_of_each_unsafe_default() {
    const OPEN: (&str, &str) = ("TOLLKEEPER_LISTEN", "0.0.0.0:0");
    const KEYS: [&str; 4] = ["`mail.url`", "`public_url`", "`require_verified_email`", "`trusted_proxies`"];
    let named = |settings: &[(&str, &str)]| -> Vec<&str> {
        let lines = warnings(settings);
        KEYS.into_iter().filter(|key| lines.iter().any(|line| line.contains(key))).collect()
    };
    assert_eq!(named(&[OPEN]), KEYS);
    let lines = warnings(&[OPEN]);
    assert_eq!(lines.len(), 4, "one line each: {lines:?}");
    for (key, way_out) in [
        ("`mail.url`", "smtp"),
        ("`public_url`", "https://"),
        ("`require_verified_email`", "= true"),
        ("`trusted_proxies`", "`tls.certificate_file`"),
    ] {
        let line = lines.iter().find(|line| line.contains(key)).unwrap();
        assert!(line.contains(way_out), "{line}");
    }
    assert_eq!(warnings(&[]), Vec::<String>::new(), "no warning on the loopback address");
    let good = [
        OPEN,
        ("TOLLKEEPER_MAIL__URL", "smtp://127.0.0.1:1"),
        ("TOLLKEEPER_PUBLIC_URL", "https://keeper.example.com"),
        ("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true"),
        ("TOLLKEEPER_TRUSTED_PROXIES", "10.0.0.1"),
    ];
    assert_eq!(warnings(&good), Vec::<String>::new());
    // Everyone with an e-mail address gets credit for models that cost the operator money.
    let paid = |settings: &[(&'static str, &'static str)]| {
        let lines = warnings(&[&good[..], settings].concat());
        lines.into_iter().filter(|line| line.contains("`billing.credit_limit`")).collect::<Vec<_>>()
    };
    let own = ("TOLLKEEPER_CATALOG_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/default.toml"));
    let lines = paid(&[own, ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "25")]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("`registration = \"invited\"`"), "{lines:?}");
    for settings in [
        &[own, ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0")][..],
        &[own, ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "25"), ("TOLLKEEPER_REGISTRATION", "invited")],
        &[("TOLLKEEPER_BILLING__CREDIT_LIMIT", "25")],
    ] {
        assert_eq!(paid(settings), Vec::<String>::new(), "{settings:?}");
    }
    for (index, key) in KEYS.iter().enumerate() {
        let mut without = good.to_vec();
        without.remove(index + 1);
        assert_eq!(named(&without), [*key]);
    }
}

#[test]
fn address_that_has_no_passkeys_causes_a_warning() {
    const URL: &str = "TOLLKEEPER_PUBLIC_URL";
    for url in ["https://192.0.2.1", "https://[2001:db8::1]:8443/path", "http://0.0.0.0:8080"] {
        let lines = warnings(&[(URL, url)]);
        assert_eq!(lines.len(), 1, "{url}: {lines:?}");
        for word in ["`public_url`", "passkeys", "`sign_in.passkeys = false`"] {
            assert!(lines[0].contains(word), "no {word} in {}", lines[0]);
        }
        assert_eq!(warnings(&[(URL, url), ("TOLLKEEPER_SIGN_IN__PASSKEYS", "false")]), Vec::<String>::new());
    }
    for url in
        ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080", "https://keeper.example.com"]
    {
        assert_eq!(warnings(&[(URL, url)]), Vec::<String>::new(), "{url}");
    }
}

#[test]
fn server_warns_of_the_built_in_demo() {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/default.toml"), &catalog).unwrap();
    let named = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap());
    let (start, named) = (Start::new(&folder.0).unset(CREDIT_LIMIT), named.unset(CREDIT_LIMIT));
    for (start, count, credit) in [
        (start, 1, "can spend 5 USD on the built-in demo"),
        (named, 0, "for the built-in demo: with your own catalog"),
    ] {
        let log = start.run().stop().log;
        assert_eq!(
            log.lines().filter(|line| line.contains(" INFO ") && line.contains(credit)).count(),
            1,
            "{log}"
        );
        let warnings =
            log.lines().filter(|line| line.contains(" WARN ") && line.contains("the built-in demo"));
        assert_eq!(warnings.count(), count, "{log}");
    }
}

#[test]
fn short_service_token_is_refused() {
    let folder = Folder::new();
    for (token, good) in [("x", false), ("nineteen-characters", false), ("twenty-characters-ok", true)] {
        let start = Start::new(&folder.0).set("TOLLKEEPER_SERVICE_TOKEN", token);
        let ended = start.command(&["config"]);
        assert_eq!(ended.code, Some(i32::from(!good)), "{token}: {}", ended.log);
        if !good {
            for word in
                ["TOLLKEEPER_SERVICE_TOKEN", "`service_token`", "at least 20 characters", "openssl rand"]
            {
                assert!(ended.log.contains(word), "no {word} in {}", ended.log);
            }
            assert!(!ended.log.contains(token) || token.len() < 2, "{}", ended.log);
        }
    }
    // A short token in a file is refused too.
    let start = Start::new(&folder.0);
    assert_eq!(start.run().stop().code, Some(0));
    let file = start.data_dir().join("service.token");
    std::fs::write(&file, "short\n").unwrap();
    let refused = start.refused();
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.log.contains("service.token") && refused.log.contains("at least 20 characters"),
        "{}",
        refused.log
    );
}
