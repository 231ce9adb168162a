//! TLS on the listeners, tested with curl and openssl and with certificates that the test creates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::process::{ProcessResult, Server, Start, run_to_end};
use support::smtp::make_certificates;
use support::{python, world::Folder};

fn is_installed(what: &str) -> bool {
    let here = |program: &str, flag: &str| Command::new(program).arg(flag).output().is_ok();
    let here = here("curl", "--version") && here("openssl", "version");
    if !here {
        python::skip(what, "`curl` or `openssl` is not installed");
    }
    here
}

/// Creates a folder with a certificate authority, a certificate and its key.
fn certificates() -> Folder {
    let folder = Folder::new();
    make_certificates(&folder.0);
    folder
}

fn with_pair(start: Start, which: &str, folder: &Path) -> Start {
    start
        .set(&format!("TOLLKEEPER_TLS__{which}CERTIFICATE_FILE"), folder.join("server.pem").to_str().unwrap())
        .set(&format!("TOLLKEEPER_TLS__{which}KEY_FILE"), folder.join("server.key").to_str().unwrap())
}

/// Configures both listeners with one certificate and key.
fn with_tls(start: Start, folder: &Path) -> Start {
    with_pair(with_pair(start, "", folder), "SERVICE_", folder)
}

/// Starts the server. `Start::run` would wait with plain HTTP.
fn start_server(start: &Start) -> Server {
    let server = start.listening();
    server.wait_for_log("database is ready");
    server
}

fn curl(certificates: &Path, arguments: &[&str]) -> ProcessResult {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert"]).arg(certificates.join("ca.pem")).args(arguments);
    run_to_end(command)
}

fn answers(certificates: &Path, arguments: &[&str]) -> String {
    let ended = curl(certificates, arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[test]
fn both_listeners_speak_tls() {
    if !is_installed("TLS on the listeners") {
        return;
    }
    let (folder, certificates) = (Folder::new(), certificates());
    let server = start_server(&with_tls(Start::new(&folder.0), &certificates.0));
    for address in [server.public, server.service] {
        let url = |path: &str| format!("https://{address}{path}");
        for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"], &["--http1.1"], &["--http2"]]
        {
            let (health, format) = (url("/healthz"), "\n%{http_version} %{ssl_verify_result}");
            let text = answers(&certificates.0, &[version, &["-w", format, &health]].concat());
            assert!(
                text.starts_with("{\"status\":\"ok\"") && text.ends_with("\n1.1 0"),
                "{version:?}: {text}"
            );
        }
        // The connection handles several requests, and long answers.
        let document = url("/openapi.json");
        let text = answers(&certificates.0, &["-w", "\n%{num_connects}\n", &document, &document, &document]);
        let connects: Vec<_> = text.lines().filter(|line| ["0", "1"].contains(line)).collect();
        assert_eq!(connects, ["1", "0", "0"]);
        // Older TLS versions and HTTP/2 aren't supported.
        let old = curl(&certificates.0, &["--tls-max", "1.1", &url("/healthz")]);
        assert_ne!(old.code, Some(0), "{old:?}");
        assert!(openssl(&address.to_string(), &["-alpn", "h2,http/1.1"]).contains("ALPN protocol: http/1.1"));
        assert!(!openssl(&address.to_string(), &["-alpn", "h2"]).contains("ALPN protocol: h2"));
    }
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

#[test]
fn health_command_speaks_tls() {
    if !is_installed("TLS of the health command") {
        return;
    }
    let (folder, certificates) = (Folder::new(), certificates());
    let start = with_tls(Start::new(&folder.0), &certificates.0);
    let server = start_server(&start);
    let start = start.set("TOLLKEEPER_LISTEN", &server.public.to_string());
    let ended = start.command(&["health"]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout.ends_with(" is ready.\n"), "{}", ended.stdout);
    assert_eq!(server.stop().code, Some(0));
    let ended = start.command(&["health"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

fn openssl(address: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address]).args(arguments);
    let ended = run_to_end(command);
    ended.stdout + &ended.log
}

#[test]
fn one_listener_alone_speaks_tls() {
    if !is_installed("TLS on one listener") {
        return;
    }
    let certificates = certificates();
    for (which, tls_is_public) in [("", true), ("SERVICE_", false)] {
        let folder = Folder::new();
        let server = start_server(&with_pair(Start::new(&folder.0), which, &certificates.0));
        let (tls, plain) =
            if tls_is_public { (server.public, server.service) } else { (server.service, server.public) };
        answers(&certificates.0, &["-f", &format!("https://{tls}/healthz")]);
        answers(&certificates.0, &["-f", &format!("http://{plain}/healthz")]);
    }
}

#[test]
fn plain_http_is_refused_at_once() {
    if !is_installed("plain HTTP to a TLS port") {
        return;
    }
    let (folder, certificates) = (Folder::new(), certificates());
    let start =
        with_tls(Start::new(&folder.0), &certificates.0).set("TOLLKEEPER_SERVER__HEAD_TIMEOUT_SECONDS", "3");
    let server = start_server(&start);
    let said = |words: &[u8]| {
        let mut stream = TcpStream::connect(server.public).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(words).unwrap();
        let (asked, mut text) = (Instant::now(), Vec::new());
        // A reset counts as an end of the connection.
        stream.read_to_end(&mut text).ok();
        (text, asked.elapsed())
    };
    let (text, waited) = said(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    assert!(text.contains("\"code\":\"malformed_request\"") && text.contains("accepts only TLS"), "{text}");
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    let (text, waited) = said(&[0, 1, 2, 3]);
    assert!(text.is_empty() && waited < Duration::from_secs(3), "{text:?} {waited:?}");
    // A handshake that stops or never starts times out.
    for half in [&[22, 3, 1, 1, 0][..], &[]] {
        let (text, waited) = said(half);
        assert!(text.is_empty(), "{text:?}");
        assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(20), "{waited:?}");
    }
    // A head that stops after a complete handshake also times out, but gets an answer.
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &server.public.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    stdin.flush().unwrap();
    let mut text = String::new();
    client.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    drop(stdin);
    client.wait().unwrap();
    assert!(text.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{text}");
    // Stopping the server doesn't wait for a handshake.
    let _silent = TcpStream::connect(server.public).unwrap();
    let ended = server.stop();
    assert!(!ended.log.contains("cut off"), "{}", ended.log);
}

#[test]
fn new_certificate_is_loaded_and_an_invalid_one_is_not() {
    if !is_installed("a new certificate") {
        return;
    }
    let (folder, files, next) = (Folder::new(), certificates(), certificates());
    let server = start_server(&with_tls(Start::new(&folder.0), &files.0));
    let url = format!("https://{}/healthz", server.public);
    let hang_up = |expected: &str| {
        let before = server.log().matches(expected).count();
        let order = format!("kill -HUP {}", server.pid());
        assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
        let come = support::process::until(|| server.log().matches(expected).count() > before + 1);
        assert!(come, "no {expected:?} of both listeners in:\n{}", server.log());
    };
    answers(&files.0, &[&url]);
    hang_up("the certificate was reloaded: nothing has changed");
    answers(&files.0, &[&url]);

    let put = |name: &str| std::fs::copy(next.0.join(name), files.0.join(name)).unwrap();
    let old_ca = Folder::new();
    std::fs::copy(files.0.join("ca.pem"), old_ca.0.join("ca.pem")).unwrap();
    // The new certificate doesn't match the old key.
    put("server.pem");
    hang_up("the certificate is refused, the previous one stays in use");
    assert!(server.log().contains("the key doesn't belong to the certificate"), "{}", server.log());
    answers(&old_ca.0, &[&url]);
    put("server.key");
    hang_up("the certificate was reloaded: new connections use it");
    answers(&next.0, &[&url]);
    assert_ne!(curl(&old_ca.0, &[&url]).code, Some(0));
    std::fs::remove_file(files.0.join("server.key")).unwrap();
    hang_up("the certificate is refused, the previous one stays in use");
    answers(&next.0, &[&url]);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn start_with_invalid_files_names_them() {
    if !is_installed("a start with bad certificates") {
        return;
    }
    let (folder, files, other) = (Folder::new(), certificates(), certificates());
    let refused = |start: &Start, words: &[&str]| {
        let ended = start.refused();
        assert_eq!(ended.code, Some(1), "{}", ended.log);
        let last = ended.log.lines().last().unwrap();
        for word in words {
            assert!(last.contains(word), "no {word:?} in {last:?}");
        }
        assert!(!ended.log.contains("PRIVATE KEY-----\n"), "{}", ended.log);
    };
    let public = with_pair(Start::new(&folder.0), "", &files.0);
    let (certificate, key) = ("TOLLKEEPER_TLS__CERTIFICATE_FILE", "TOLLKEEPER_TLS__KEY_FILE");
    let names = |file: &str| files.0.join(file).to_str().unwrap().to_owned();
    refused(
        &public.clone().set(certificate, "/none.pem"),
        &["/none.pem: the file can't be read", certificate],
    );
    refused(
        &public.clone().set(key, "/none.key"),
        &["/none.key: the file can't be read", "`tls.key_file`", key],
    );
    let swapped = public.clone().set(certificate, &names("server.key"));
    refused(&swapped, &["server.key: it contains no certificate", "`tls.certificate_file`"]);
    let swapped = public.clone().set(key, &names("server.pem"));
    refused(&swapped, &["server.pem: it contains no readable private key", "`tls.key_file`"]);
    let foreign = public.clone().set(key, other.0.join("server.key").to_str().unwrap());
    refused(&foreign, &["the key doesn't belong to the certificate", "server.pem", "`tls.key_file`"]);
    let half = Start::new(&folder.0).set("TOLLKEEPER_TLS__SERVICE_KEY_FILE", &names("server.key"));
    refused(&half, &["`tls.service_key_file`: expected `tls.service_certificate_file` as well"]);
    let service = with_pair(Start::new(&folder.0), "SERVICE_", &files.0);
    let service = service.set("TOLLKEEPER_TLS__SERVICE_KEY_FILE", "/none.key");
    refused(&service, &["/none.key", "`tls.service_key_file`"]);
}
