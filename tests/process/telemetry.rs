//! Traces for an OpenTelemetry collector, and request ids in everything that a request causes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use support::process::{Place, Server, Start, Wire, run_to_end, usage_event};
use support::python::{python, skip};
use support::smtp::make_certificates;
use support::upstream::{Upstream, json_answer};
use support::world::{Folder, PASSWORD, runtime};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that records each request, and answers with a fixed status.
struct Collector {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Value>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn start(status: &'static str) -> Self {
        Self::with(status, None)
    }

    /// Starts a collector with TLS, using `server.pem` and `server.key` in this folder.
    fn under_tls(certificates: &Path) -> Self {
        let file = |name: &str| std::fs::File::open(certificates.join(name)).unwrap();
        let chain = CertificateDer::pem_reader_iter(file("server.pem")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_reader(file("server.key")).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Self::with("200 OK", Some(Arc::new(config.with_single_cert(chain, key).unwrap())))
    }

    fn with(status: &'static str, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (bodies, heads) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let shared = (Arc::clone(&bodies), Arc::clone(&heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let taken = match &tls {
                    None => take(stream, status),
                    Some(tls) => {
                        let session = rustls::ServerConnection::new(Arc::clone(tls)).unwrap();
                        take(rustls::StreamOwned::new(session, stream), status)
                    }
                };
                let Some((head, body)) = taken else { continue };
                shared.0.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                shared.1.lock().unwrap().push(head);
            }
        });
        Self { address, bodies, heads }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all spans received so far.
    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap();
        let scopes = bodies
            .iter()
            .flat_map(|body| items(&items(std::slice::from_ref(body), "resourceSpans"), "scopeSpans"));
        scopes.flat_map(|scope| items(std::slice::from_ref(&scope), "spans")).collect()
    }

    /// Returns all log lines received so far, each with its `target`.
    fn lines(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap();
        let mut lines = Vec::new();
        for scope in bodies
            .iter()
            .flat_map(|body| items(&items(std::slice::from_ref(body), "resourceLogs"), "scopeLogs"))
        {
            for mut line in items(std::slice::from_ref(&scope), "logRecords") {
                line["target"] = scope["scope"]["name"].clone();
                lines.push(line);
            }
        }
        lines
    }

    /// Waits for the root span of a trace. Returns it, and the other spans of the trace.
    fn trace(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> (Value, Vec<Value>) {
        let found = || self.spans().into_iter().find(|span| span["name"] == name && wanted(span));
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(root) = found() {
                let is_of_it =
                    |span: &Value| span["traceId"] == root["traceId"] && span["spanId"] != root["spanId"];
                let parts = self.spans().into_iter().filter(|span| is_of_it(span)).collect();
                return (root, parts);
            }
            assert!(Instant::now() < until, "no {name} in {:#?}", self.spans());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the elements of the lists with this name in all objects.
fn items(objects: &[Value], name: &str) -> Vec<Value> {
    objects.iter().filter_map(|object| object[name].as_array()).flatten().cloned().collect()
}

fn take(stream: impl Read + Write, status: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let answer =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
    stream.get_mut().write_all(answer.as_bytes()).ok()?;
    Some((head, body))
}

fn attribute(span: &Value, name: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    let value =
        all.iter().find(|attribute| attribute["key"] == name).map(|attribute| attribute["value"].clone());
    let value = value.unwrap_or_default();
    value.get("stringValue").or(value.get("intValue")).cloned().unwrap_or_default()
}

fn start_with_tracing(folder: &Folder, endpoint: &str, ratio: &str) -> Server {
    let start = Start::new(&folder.0).set("TOLLKEEPER_TELEMETRY__ENDPOINT", endpoint);
    start
        .set("TOLLKEEPER_TELEMETRY__SAMPLE_RATIO", ratio)
        .set("TOLLKEEPER_TELEMETRY__HEADERS", "x-api-key=s3cret=, x-more=1")
        .run()
}

fn reserve(server: &Server, place: &Place, traceparent: &str) -> String {
    let body = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 10});
    let answer = server.ask("/service/v1/authorize", &body).header("traceparent", traceparent).send();
    assert_eq!((answer.status, &answer.json()["allowed"]), (200, &json!(true)), "{}", answer.text);
    answer.header("x-request-id").to_owned()
}

#[test]
fn trace_has_its_parts_and_continues_the_callers() {
    let (folder, collector) = (Folder::new(), Collector::start("200 OK"));
    let server = start_with_tracing(&folder, &collector.url(), "1");
    let place = server.settle(&server.sign_up("ada"));
    let request_id = reserve(&server, &place, &format!("00-{TRACE}-{PARENT}-01"));
    let (root, parts) = collector.trace("POST /service/v1/authorize", |_| true);
    assert_eq!(
        (&root["traceId"], &root["parentSpanId"], &root["kind"]),
        (&json!(TRACE), &json!(PARENT), &json!(2))
    );
    let organization = place.project_path.split('/').nth(3).unwrap();
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/service/v1/authorize"),
        ("http.response.status_code", "200"),
        ("tollkeeper.listener", "service"),
        ("tollkeeper.request_id", &request_id),
        ("tollkeeper.organization_id", organization),
        ("tollkeeper.actor", "service"),
    ] {
        assert_eq!(attribute(&root, name), value, "{name} of {root:#}");
    }
    let named = |name: &str| {
        let mut spans = parts.iter().filter(|span| span["name"] == name);
        (spans.next().unwrap_or_else(|| panic!("no {name} in {parts:#?}")), spans.count())
    };
    let (decision, others) = named("decision");
    assert_eq!((&decision["parentSpanId"], others), (&root["spanId"], 0));
    for name in ["books.wait", "books.write"] {
        assert_eq!((&named(name).0["parentSpanId"], named(name).1), (&decision["spanId"], 0), "{name}");
    }
    assert_eq!(attribute(named("books.write").0, "tollkeeper.books.pieces"), "1");
    let (statement, _) = named("db.statement");
    assert_eq!(statement["parentSpanId"], decision["spanId"], "the key is read at its first use");
    assert!(attribute(statement, "db.query.text").as_str().unwrap().starts_with("SELECT"), "{statement:#}");
    let ns = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    for span in &parts {
        let (from, to) = (ns(span, "startTimeUnixNano"), ns(span, "endTimeUnixNano"));
        assert!(from <= to && from >= ns(&root, "startTimeUnixNano"), "{span:#}");
        assert!(to <= ns(&root, "endTimeUnixNano"), "{span:#} of {root:#}");
        assert!(!span.to_string().contains(&place.key), "{span:#}");
    }
    let ids: std::collections::HashSet<_> =
        collector.spans().iter().map(|span| span["spanId"].to_string()).collect();
    assert_eq!(ids.len(), collector.spans().len());

    // A request without a trace starts its own.
    server.get(&place.project_path).send();
    let route = "/v1/organizations/{organization_id}/projects/{project_id}";
    let (root, _) = collector.trace(&format!("GET {route}"), |_| true);
    assert!(root["parentSpanId"].as_str().is_none_or(str::is_empty), "{root:#}");
    assert_eq!(attribute(&root, "error.type"), "missing_credentials");
    assert_eq!(attribute(&root, "tollkeeper.organization_id"), Value::Null, "a stranger has sent it");
    let heads = collector.heads.lock().unwrap().clone();
    assert!(heads[0].starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", heads[0]);
    for line in ["content-type: application/json", "x-api-key: s3cret=", "x-more: 1"] {
        assert!(heads[0].contains(&format!("\r\n{line}\r\n")), "{}", heads[0]);
    }
    // The rest is sent when the server stops.
    let answer = server.get("/no/such/path").send();
    let last = answer.header("x-request-id").to_owned();
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(!ended.log.contains("s3cret"), "{}", ended.log);
    let is_last = |span: &Value| attribute(span, "tollkeeper.request_id") == last.as_str();
    assert!(collector.spans().iter().any(is_last), "{:#?}", collector.spans());
}

#[test]
fn model_call_is_a_span_whose_trace_goes_on_upstream() {
    let (folder, collector) = (Folder::new(), Collector::start("200 OK"));
    let runtime = runtime();
    let upstream = runtime.block_on(async {
        let upstream = Upstream::start().await;
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}});
        upstream.script([json_answer(503, &json!({})), json_answer(200, &json!({"choices": [], "usage": usage}))]);
        upstream
    });
    let catalog = folder.0.join("catalog.toml");
    let built_in = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/default.toml"));
    let routes = "routes = [{ upstream = \"a\", model = \"org/m\" }, { upstream = \"b\", model = \"org/m\", tier = 1 }]";
    let table =
        |id: &str| format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
    let models = built_in.replace("id = \"svc-1\"", &format!("id = \"svc-1\"\n{routes}"));
    std::fs::write(&catalog, models + "\n" + &table("a") + &table("b")).unwrap();
    let server = Start::new(&folder.0)
        .set("TOLLKEEPER_TELEMETRY__ENDPOINT", &collector.url())
        .set("TOLLKEEPER_TELEMETRY__SAMPLE_RATIO", "1")
        .set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap())
        .run();
    let place = server.settle(&server.sign_up("ada"));
    let body =
        json!({"model": "svc-1", "messages": [{"role": "user", "content": "secret words"}], "max_tokens": 5});
    let answer = server.post("/v1/chat/completions", &body).bearer(&place.key).send();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let (root, _) = collector.trace("POST /v1/chat/completions", |_| true);
    let is_of = |id: &'static str| move |span: &Value| attribute(span, "tollkeeper.upstream") == id;
    let (failed, _) = collector.trace("chat org/m", is_of("a"));
    let (span, _) = collector.trace("chat org/m", is_of("b"));
    for one in [&failed, &span] {
        assert_eq!((&one["traceId"], &one["parentSpanId"]), (&root["traceId"], &root["spanId"]));
        assert_eq!(one["kind"], 3, "a client's");
    }
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.request.model", "org/m"),
        ("gen_ai.usage.input_tokens", "9"),
        ("gen_ai.usage.output_tokens", "2"),
        ("gen_ai.usage.cache_read.input_tokens", "4"),
        ("tollkeeper.call_id", answer.header("x-tollkeeper-call-id")),
    ] {
        assert_eq!(attribute(&span, name), value, "{name} of {span:#}");
    }
    assert_eq!(attribute(&failed, "error.type"), "model_overloaded");
    let received = upstream.received();
    for (received, span) in received.iter().zip([&failed, &span]) {
        let parent = format!(
            "traceparent: 00-{}-{}-01",
            root["traceId"].as_str().unwrap(),
            span["spanId"].as_str().unwrap()
        );
        assert!(received.head.contains(&parent), "{:?} without {parent}", received.head);
    }
    server.stop();
    assert!(!format!("{:?}", collector.spans()).contains("secret words"));
}

#[test]
fn only_service_listener_callers_choose_sampling() {
    let (folder, collector) = (Folder::new(), Collector::start("200 OK"));
    let server = start_with_tracing(&folder, &collector.url(), "0");
    let place = server.settle(&server.sign_up("ada"));
    let chosen = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(server.get("/healthz").header("traceparent", &chosen).send().status, 200);
    reserve(&server, &place, &chosen.replace("-01", "-00"));
    reserve(&server, &place, &chosen.replace(TRACE, "xyz"));
    let request_id = reserve(&server, &place, &chosen);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let roots: Vec<_> = collector.spans().into_iter().filter(|span| span["kind"] == 2).collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    assert_eq!(attribute(&roots[0], "tollkeeper.request_id"), request_id.as_str());
}

#[test]
fn unavailable_collector_costs_a_log_line() {
    // The socket isn't listening, and reserves the address in the meantime.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unused_address = format!("http://{}", socket.local_addr().unwrap());
    let refusing = Collector::start("401 Unauthorized");
    for (endpoint, why) in
        [(unused_address, "refused"), (refusing.url(), "the collector answers 401 Unauthorized: {}")]
    {
        let folder = Folder::new();
        let server = start_with_tracing(&folder, &endpoint, "1");
        let place = server.settle(&server.sign_up("ada"));
        server.wait_for_log("traces can't be exported and are dropped");
        let lost = |server: &Server| {
            let scrape = Wire::new(server.service, "GET", "/metrics").bearer(&server.service_token()).send();
            let line =
                scrape.text.lines().find_map(|line| line.strip_prefix("tollkeeper_traces_lost_total "));
            line.unwrap().parse::<u64>().unwrap()
        };
        let before = lost(&server);
        for turn in 0..3 {
            reserve(&server, &place, &format!("00-{TRACE}-{PARENT}-01"));
            let until = Instant::now() + Duration::from_secs(60);
            while lost(&server) <= before + turn {
                assert!(Instant::now() < until, "nothing was dropped");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        let lines: Vec<_> =
            ended.log.lines().filter(|line| line.contains("traces can't be exported")).collect();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains(why) && lines[0].contains("/v1/traces"), "{}", lines[0]);
    }
}

#[test]
fn collector_is_verified_by_its_certificate() {
    if std::process::Command::new("openssl").arg("version").output().is_err() {
        return skip("TLS to a collector", "`openssl` is not installed");
    }
    let certificates = Folder::new();
    make_certificates(&certificates.0);
    let collector = Collector::under_tls(&certificates.0);
    let port = collector.address.port();
    // The collector's certificate authority is known in the first case, and unknown in the second.
    let other = Folder::new();
    make_certificates(&other.0);
    let cases = [("localhost", &certificates, None), ("localhost", &other, Some("invalid peer certificate"))];
    for (host, trusted, why) in cases {
        let folder = Folder::new();
        let server = Start::new(&folder.0)
            .set("TOLLKEEPER_TELEMETRY__ENDPOINT", &format!("https://{host}:{port}"))
            .set("TOLLKEEPER_TELEMETRY__SAMPLE_RATIO", "1")
            .set("SSL_CERT_FILE", trusted.0.join("ca.pem").to_str().unwrap())
            .run();
        let place = server.settle(&server.sign_up("ada"));
        let before = collector.spans().len();
        let request_id = reserve(&server, &place, &format!("00-{TRACE}-{PARENT}-01"));
        let Some(why) = why else {
            let asked = |span: &Value| attribute(span, "tollkeeper.request_id") == request_id.as_str();
            collector.trace("POST /service/v1/authorize", asked);
            assert_eq!(server.stop().code, Some(0));
            continue;
        };
        server.wait_for_log("traces can't be exported and are dropped");
        let ended = server.stop();
        assert!(ended.log.contains(why), "{}", ended.log);
        assert_eq!(collector.spans().len(), before, "nothing is sent to another server");
    }
}

#[test]
fn sent_data_follows_the_standard() {
    const CHECK: &str = r#"
import json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
spans = 0
for body in json.load(open(sys.argv[1])):
    # Unknown fields and wrong types are refused; ids are hexadecimal in OTLP, which reads as base64 as well.
    request = json_format.ParseDict(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)
    for span in (span for r in request.resource_spans for scope in r.scope_spans for span in scope.spans):
        assert span.name and span.start_time_unix_nano <= span.end_time_unix_nano, span
        assert all(a.value.WhichOneof("value") in ("string_value", "int_value") for a in span.attributes), span
        spans += 1
print("valid", spans)
"#;
    let (module, package) =
        ("opentelemetry.proto.collector.trace.v1.trace_service_pb2", "opentelemetry-proto");
    let Some(mut program) = python(module, package, "the traces' format") else { return };
    let (folder, collector) = (Folder::new(), Collector::start("200 OK"));
    let server = start_with_tracing(&folder, &collector.url(), "1");
    let place = server.settle(&server.sign_up("ada"));
    assert_eq!(server.report(&place, "event-1"), "accepted");
    server.ask("/service/v1/usage", &usage_event(&place, "event-2")).header("traceparent", "nonsense").send();
    server.stop();
    let file = folder.0.join("traces.json");
    std::fs::write(&file, json!(*collector.bodies.lock().unwrap()).to_string()).unwrap();
    program.args(["-c", CHECK]).arg(&file);
    let ended = run_to_end(program);
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (Some(0), &*format!("valid {}", collector.spans().len())),
        "{}",
        ended.log
    );
}

#[test]
fn log_lines_are_sent_when_configured() {
    const CHECK: &str = r#"
import json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
lines = 0
for body in json.load(open(sys.argv[1])):
    request = json_format.ParseDict(body, ExportLogsServiceRequest(), ignore_unknown_fields=False)
    for line in (line for r in request.resource_logs for scope in r.scope_logs for line in scope.log_records):
        assert line.body.string_value and line.time_unix_nano > 0 and line.severity_number in (5, 9, 13, 17), line
        lines += 1
print("valid", lines)
"#;
    for wanted in [true, false] {
        let (folder, collector) = (Folder::new(), Collector::start("200 OK"));
        let server = Start::new(&folder.0)
            .set("TOLLKEEPER_TELEMETRY__ENDPOINT", &collector.url())
            .set("TOLLKEEPER_TELEMETRY__SAMPLE_RATIO", "0")
            .set("TOLLKEEPER_TELEMETRY__LOGS", if wanted { "true" } else { "false" })
            .run();
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
        let id = server.post("/v1/auth/register", &body).send().header("x-request-id").to_owned();
        server.wait_for_log("mail sent");
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        let lines = collector.lines();
        if !wanted {
            assert!(lines.is_empty(), "{lines:#?}");
            continue;
        }
        let said = |what: &str| {
            let found = lines.iter().find(|line| line["body"]["stringValue"] == what);
            found.unwrap_or_else(|| panic!("no {what:?} in {lines:#?}"))
        };
        assert_eq!(attribute(said("mail sent"), "tollkeeper.request_id"), id.as_str());
        let listening = said("listening");
        assert_eq!((&listening["severityText"], &listening["severityNumber"]), (&json!("INFO"), &json!(9)));
        assert_eq!(attribute(listening, "public"), server_address(&ended.log));
        assert!(lines.iter().all(|line| !line.to_string().contains("tollkeeper::access")), "{lines:#?}");
        let (module, package) =
            ("opentelemetry.proto.collector.logs.v1.logs_service_pb2", "opentelemetry-proto");
        let Some(mut program) = python(module, package, "the log lines' format") else { return };
        let logs: Vec<_> = collector.bodies.lock().unwrap().clone();
        let file = folder.0.join("logs.json");
        std::fs::write(&file, json!(logs).to_string()).unwrap();
        program.args(["-c", CHECK]).arg(&file);
        let checked = run_to_end(program);
        let valid = format!("valid {}", lines.len());
        assert_eq!((checked.code, checked.stdout.trim()), (Some(0), &*valid), "{}", checked.log);
    }
}

/// Returns the address of the public listener from the log.
fn server_address(log: &str) -> String {
    let line = log.lines().find(|line| line.contains(": listening")).unwrap();
    let address = line.split("public=").nth(1).unwrap();
    address.split(' ').next().unwrap().to_owned()
}

#[test]
fn mail_log_names_its_request_in_both_formats() {
    for format in ["text", "json"] {
        let folder = Folder::new();
        let server = Start::new(&folder.0).set("TOLLKEEPER_LOG__FORMAT", format).run();
        let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
        let answer = server.post("/v1/auth/register", &body).send();
        let id = answer.header("x-request-id").to_owned();
        server.wait_for_log("mail sent");
        let log = server.stop().log;
        for what in ["mail written", "mail sent"] {
            let line = log.lines().find(|line| line.contains(what)).unwrap();
            if format == "json" {
                assert_eq!(serde_json::from_str::<Value>(line).unwrap()["request_id"], id.as_str(), "{line}");
            } else {
                assert!(line.ends_with(&format!(" request_id={id}")), "{line}");
            }
        }
        assert!(!log.lines().any(|line| line.contains("listening") && line.contains("request_id")), "{log}");
    }
}
