//! `GET /metrics`.

use http::Method;
use serde_json::json;
use tollkeeper::billing::scheduled_audit;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::cluster::leases::LEASE_MS;
use tollkeeper::db::sql;
use tollkeeper::metrics::Job;

use support::http::{Answer, Call};
use support::on_each_database;
use support::process::{Start, Wire, run_to_end};
use support::python::python;
use support::world::{Folder, PASSWORD, World};

async fn metrics(world: &World, token: &str) -> Answer {
    Call::new(&world.service, Method::GET, "/metrics").bearer(token).send().await
}

/// Returns the value of one metric.
async fn value(world: &World, name: &str) -> u64 {
    let text = metrics(world, world.app.api.service_token.expose()).await.text;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = lines.next().unwrap_or_else(|| panic!("no {name} in {text}"));
    assert_eq!(lines.next(), None, "{name} occurs twice in {text}");
    value.parse().unwrap()
}

#[on_each_database]
async fn metrics_require_the_service_token_and_count_mails(world: World) {
    let ada = world.user("ada").await;
    for token in ["", "svc_wrong", &ada.access_token] {
        assert_eq!(metrics(&world, token).await.status, 401, "{token}");
    }
    let public =
        Call::new(&world.public, Method::GET, "/metrics").bearer(world.app.api.service_token.expose());
    assert_eq!(public.refused().await.0, 404);

    let answer = metrics(&world, world.app.api.service_token.expose()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for (name, kind) in [
        ("tollkeeper_mails_sent_total", "counter"),
        ("tollkeeper_mails_failed_total", "counter"),
        ("tollkeeper_mails_given_up_total", "counter"),
        ("tollkeeper_mails_waiting", "gauge"),
        ("tollkeeper_webhook_deliveries_waiting", "gauge"),
        ("tollkeeper_webhook_deliveries_given_up_total", "counter"),
        ("tollkeeper_webhooks_disabled_total", "counter"),
        ("tollkeeper_changes_applied_total", "counter"),
        ("tollkeeper_changes_gaps_total", "counter"),
        ("tollkeeper_changes_position", "gauge"),
        ("tollkeeper_changes_lag", "gauge"),
        ("tollkeeper_memory_trusted", "gauge"),
        ("tollkeeper_catalog_reloads_total", "counter"),
        ("tollkeeper_catalog_refused", "gauge"),
        ("tollkeeper_keys_held", "gauge"),
        ("tollkeeper_keys_held_bytes", "gauge"),
    ] {
        let first = u8::from(name == "tollkeeper_memory_trusted");
        let lines = format!("# TYPE {name} {kind}\n{name} {first}\n");
        assert!(answer.text.contains(&lines), "{}", answer.text);
        assert!(answer.text.contains(&format!("# HELP {name} ")), "{}", answer.text);
    }

    let body = json!({"email": "bob@example.com", "password": PASSWORD, "username": "bob"});
    world.post("/v1/auth/register", &body).data().await;
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    assert_eq!(value(&world, "tollkeeper_mails_waiting").await, 2);
    assert_eq!(value(&world, "tollkeeper_mails_sent_total").await, 0);
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    assert_eq!(value(&world, "tollkeeper_mails_waiting").await, 0);
    assert_eq!(value(&world, "tollkeeper_mails_sent_total").await, 2);
}

#[on_each_database]
async fn feed_and_caches_are_measured(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    world.get("/v1/models").bearer(&key).bare().await;
    assert_eq!(value(&world, "tollkeeper_keys_held").await, 1);
    let bytes = value(&world, "tollkeeper_keys_held_bytes").await;
    assert!((200..600).contains(&bytes), "{bytes}");
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    let of = async |name: &str| value(&world, &format!("tollkeeper_{name}")).await;
    assert_eq!((of("changes_position").await, of("changes_lag").await), (0, 1));
    world.catch_up().await;
    assert_eq!((of("changes_position").await, of("changes_lag").await), (1, 0));
    assert_eq!((of("changes_applied_total").await, of("changes_gaps_total").await), (1, 0));
    world.clock.advance_ms(tollkeeper::cluster::feed::TRUST_MS);
    assert_eq!(of("memory_trusted").await, 0);
}

/// Returns the value of the line with this name and these labels; 0 without such a line.
async fn count(world: &World, series: &str) -> u64 {
    let text = metrics(world, world.app.api.service_token.expose()).await.text;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = lines.next().map_or(0, |value| value.parse().unwrap());
    assert_eq!(lines.next(), None, "{series} occurs twice in {text}");
    value
}

#[on_each_database]
async fn requests_are_counted_by_route_and_status(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    for _ in 0..3 {
        world.get("/v1/models").bearer(&key).bare().await;
    }
    let _ = world.call(Method::HEAD, "/v1/models").bearer(&key).send().await;
    world.get("/v1/models").refused().await;
    world.get(&place.organization_path()).bearer(&ada.access_token).data().await;
    world.get("/v1/organizations/org_none").bearer(&ada.access_token).refused().await;
    world.get("/no/such/path").refused().await;
    world.get("/nor/this?secret=1").refused().await;
    world.call(Method::DELETE, "/v1/models").refused().await;
    world.call(Method::from_bytes(b"BREW").unwrap(), "/v1/models").refused().await;

    let requests = async |listener: &str, method: &str, route: &str, status: u16| {
        let labels = format!("listener=\"{listener}\",method=\"{method}\",route=\"{route}\"");
        let count = async |rest: &str| count(&world, &format!("tollkeeper_http_{rest}")).await;
        let total = count(&format!("requests_total{{{labels},status=\"{status}\"}}")).await;
        let timed = count(&format!("request_duration_seconds_count{{{labels}}}")).await;
        let last = count(&format!("request_duration_seconds_bucket{{{labels},le=\"+Inf\"}}")).await;
        // A request for the metrics counts itself.
        assert!(timed == last || route == "/metrics", "{timed} {last}");
        (total, timed)
    };
    assert_eq!(requests("public", "GET", "/v1/models", 200).await, (4, 5));
    assert_eq!(requests("public", "GET", "/v1/models", 401).await, (1, 5));
    let organization = "/v1/organizations/{organization_id}";
    assert_eq!(requests("public", "GET", organization, 200).await, (1, 2));
    assert_eq!(requests("public", "GET", organization, 404).await, (1, 2));
    // Unknown paths share one row, regardless of the paths that a client makes up.
    assert_eq!(requests("public", "-", "-", 404).await, (2, 4));
    assert_eq!(requests("public", "-", "-", 405).await, (2, 4));
    let (scrapes, _) = requests("service", "GET", "/metrics", 200).await;
    assert_eq!(requests("service", "GET", "/metrics", 200).await.0, scrapes + 3, "each read counts itself");
    assert_eq!(count(&world, "tollkeeper_errors_total{code=\"unknown_path\"}").await, 2);
    assert_eq!(count(&world, "tollkeeper_errors_total{code=\"missing_credentials\"}").await, 1);
    let text = metrics(&world, world.app.api.service_token.expose()).await.text;
    for secret in [place.organization.as_str(), "org_none", "/no/such", "secret", "BREW", &key] {
        assert!(!text.contains(secret), "{secret} occurs in {text}");
    }
}

#[on_each_database]
async fn decisions_are_counted_by_code(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let restricted = json!({"name": "k", "permissions": ["chat"]});
    let (_, key) = world.key(&ada, &place, &restricted).await;
    let ask = async |key: &str, operation: &str, model: &str| {
        let body = json!({"credential": key, "operation": operation, "model": model, "reserve": true});
        world.ask("/service/v1/authorize", &body).bare().await["allowed"].as_bool().unwrap()
    };
    assert!(ask(&key, "chat", "svc-1").await && ask(&key, "chat", "svc-1").await);
    assert!(!ask(&key, "embeddings", "svc-embedding-1").await);
    assert!(!ask("tk_wrong", "chat", "svc-1").await);
    let forward = "/service/v1/forward-auth?operation=chat&model=svc-1&mode=nginx";
    for bearer in [key.as_str(), "tk_wrong"] {
        let call = Call::new(&world.service, Method::GET, forward).bearer(bearer);
        let status =
            call.header("x-tollkeeper-service-token", world.app.api.service_token.expose()).send().await;
        assert_eq!(status.status, if bearer == key { 200 } else { 401 });
    }
    world.get("/v1/models").bearer(&key).refused().await;
    world.get("/v1/models").bearer(&ada.access_token).bare().await;
    world.get("/v1/models/none").bearer(&ada.access_token).refused().await;
    for (asked, code, expected) in [
        ("authorize", "allowed", 2),
        ("authorize", "missing_permission", 1),
        ("authorize", "invalid_api_key", 1),
        ("forward_auth", "allowed", 1),
        ("forward_auth", "invalid_api_key", 1),
        ("models", "allowed", 1),
        ("models", "missing_permission", 1),
        ("models", "model_not_found", 1),
    ] {
        let series = format!("tollkeeper_decisions_total{{asked=\"{asked}\",code=\"{code}\"}}");
        assert_eq!(count(&world, &series).await, expected, "{series}");
    }
    // Three reservations, one after the other.
    assert_eq!(count(&world, "tollkeeper_books_round_pieces_bucket{le=\"1\"}").await, 3);
    assert_eq!(count(&world, "tollkeeper_books_round_pieces_sum").await, 3);
    assert_eq!(count(&world, "tollkeeper_books_round_duration_seconds_count").await, 3);
    for (queue, most) in [("books", 10_000), ("passwords", 0), ("last_uses", 1 << 20)] {
        let most_series = format!("tollkeeper_queue_capacity{{queue=\"{queue}\"}}");
        assert!(count(&world, &most_series).await >= most, "{queue}");
    }
    assert_eq!(count(&world, "tollkeeper_queue_length{queue=\"last_uses\"}").await, 1);
    assert_eq!(count(&world, "tollkeeper_cache_entries{cache=\"api_keys\"}").await, 1);
    assert_eq!(count(&world, "tollkeeper_cache_entries{cache=\"sessions\"}").await, 1);
    assert!(count(&world, "tollkeeper_db_connections_open{purpose=\"write\"}").await >= 1);
    assert!(count(&world, "tollkeeper_db_connections_open{purpose=\"read\"}").await >= 1);
}

#[on_each_database]
async fn ages_of_the_oldest_mail_and_of_the_feed_are_measured(world: World) {
    let text = async || metrics(&world, world.app.api.service_token.expose()).await.text;
    assert!(text().await.contains("\ntollkeeper_mails_oldest_age_seconds 0\n"));
    assert!(text().await.contains("\ntollkeeper_changes_age_seconds 0\n"));
    world.user("ada").await;
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    world.clock.advance_ms(90_500);
    assert!(text().await.contains("\ntollkeeper_mails_oldest_age_seconds 90.5\n"));
    assert!(text().await.contains("\ntollkeeper_changes_age_seconds 90.5\n"));
    world.catch_up().await;
    assert!(text().await.contains("\ntollkeeper_changes_age_seconds 0\n"));
}

#[on_each_database(&[("TOLLKEEPER_AUDIT__EVERY_HOURS", "6")])]
async fn servers_audit_the_books_periodically(world: World) {
    let app = &world.app;
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let [one, two] = [(); 2].map(|()| app.leases.lease(Job::Audit));
    let run = async |lease| scheduled_audit::run_due(&app.billing, lease).await.unwrap();
    let leads = "tollkeeper_job_leader{job=\"audit\"}";
    assert_eq!(run(&one).await, None, "the first run is only planned");
    assert_eq!(count(&world, leads).await, 1);
    assert_eq!(count(&world, "tollkeeper_audit_organizations").await, 0);
    world.clock.advance_ms(HOUR_MS);
    // The first replica's lease has ended, so the second replica may audit.
    let report = run(&two).await.unwrap();
    assert!(report.is_clean() && report.checked.organizations == 1, "{report:?}");
    assert_eq!(run(&one).await, None, "another replica has the lease");
    assert_eq!(count(&world, leads).await, 0);
    assert_eq!(count(&world, "tollkeeper_audit_organizations").await, 1);
    let text = metrics(&world, app.api.service_token.expose()).await.text;
    let ended_s = world.clock.now().unix_seconds();
    assert!(text.contains("\ntollkeeper_audit_drifts 0\n"), "{text}");
    assert!(text.contains(&format!("\ntollkeeper_audit_ended_timestamp_seconds {ended_s}\n")), "{text}");

    let mut tx = app.db.write().await.unwrap();
    let spoil = "UPDATE wallets SET posted_nano = posted_nano + 1 WHERE organization_id = $1";
    sql(spoil).bind(place.organization.as_str()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    world.clock.advance_ms(6 * HOUR_MS - MINUTE_MS);
    assert_eq!(run(&two).await, None, "the job isn't due yet");
    world.clock.advance_ms(MINUTE_MS.max(LEASE_MS));
    let report = run(&one).await.unwrap();
    assert!(!report.is_clean());
    let drifts = u64::try_from(report.drifts.len()).unwrap();
    assert_eq!(count(&world, "tollkeeper_audit_drifts").await, drifts);
}

#[on_each_database(&[("TOLLKEEPER_AUDIT__EVERY_HOURS", "0")])]
async fn audit_can_be_switched_off(world: World) {
    let lease = world.app.leases.lease(Job::Audit);
    for _ in 0..3 {
        assert_eq!(scheduled_audit::run_due(&world.app.billing, &lease).await.unwrap(), None);
        world.clock.advance_ms(48 * HOUR_MS);
    }
    let text = metrics(&world, world.app.api.service_token.expose()).await.text;
    assert!(!text.contains("tollkeeper_audit_drifts"), "{text}");
}

/// A program that parses the format with Prometheus' own library, and checks the rules that the library
/// ignores.
const PARSE: &str = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families
seen, families = set(), 0
for family in text_string_to_metric_families(open(sys.argv[1]).read()):
    families += 1
    assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    counts = {}
    for sample in family.samples:
        labels = tuple(sorted(sample.labels.items()))
        assert (sample.name, labels) not in seen, sample
        seen.add((sample.name, labels))
        if family.type == "histogram":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            counts.setdefault(rest, []).append(sample)
    for samples in counts.values():
        buckets = [s.value for s in samples if s.name.endswith("_bucket")]
        bounds = [float(s.labels["le"]) for s in samples if s.name.endswith("_bucket")]
        [count] = [s.value for s in samples if s.name.endswith("_count")]
        [total] = [s.value for s in samples if s.name.endswith("_sum")]
        assert buckets == sorted(buckets) and bounds == sorted(bounds) and bounds[-1] == float("inf"), samples
        assert buckets[-1] == count and (total > 0) == (count > 0), samples
print("valid", families)
"#;

#[test]
fn official_parser_reads_the_metrics() {
    let Some(mut program) = python("prometheus_client", "prometheus-client", "the metrics' format") else {
        return;
    };
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    server.report(&place, "event-1");
    server.get("/no/such/path").send();
    let scrape = || Wire::new(server.service, "GET", "/metrics").bearer(&server.service_token()).send();
    // By then, the jobs have run.
    server.wait_for_log("mail sent");
    let answer = scrape();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let value = |name: &str| -> f64 {
        let line = answer.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {}", answer.text)).parse().unwrap()
    };
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") > 3.0 && value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_start_time_seconds") > 1.7e9);
    assert_eq!(value("tollkeeper_queue_capacity{queue=\"public_connections\"}"), 10_000.0);
    assert!(value("tollkeeper_queue_length{queue=\"service_connections\"}") >= 1.0);
    assert_eq!(value("tollkeeper_queue_full_total{queue=\"log\"}"), 0.0);
    assert!(value("tollkeeper_job_runs_total{job=\"changes\"}") >= 1.0);
    assert!(value("tollkeeper_job_last_success_timestamp_seconds{job=\"mail\"}") > 1.7e9);
    assert_eq!(value("tollkeeper_job_leader{job=\"billing\"}"), 1.0);
    assert_eq!(value("tollkeeper_database_up"), 1.0);
    let file = folder.0.join("metrics.txt");
    std::fs::write(&file, &answer.text).unwrap();
    program.args(["-c", PARSE]).arg(&file);
    let ended = run_to_end(program);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let families: u32 = ended.stdout.trim().strip_prefix("valid ").unwrap().parse().unwrap();
    assert!(families >= 40, "{families}");
}

#[test]
fn metrics_are_served_while_the_database_is_down() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).database(Some("postgres://nobody@127.0.0.1:1/none")).listening();
    let answer = Wire::new(server.service, "GET", "/metrics").bearer(&server.service_token()).send();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.contains("\ntollkeeper_database_up 0\n"), "{}", answer.text);
    assert!(answer.text.contains("\ntollkeeper_booted 0\n"), "{}", answer.text);
    assert!(!answer.text.contains("tollkeeper_mails_waiting"), "{}", answer.text);
    assert_eq!(Wire::new(server.service, "GET", "/metrics").send().status, 401);
}
