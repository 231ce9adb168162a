//! E-mail through a real mail server: encryption, failures, and that no e-mail is lost.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tollkeeper::app::App;
use tollkeeper::clock::{Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};
use tollkeeper::ids::UserId;
use tollkeeper::jobs;
use tollkeeper::mail::posting::Draft;
use tollkeeper::mail::sending::send_due;
use tollkeeper::web::route::Listener;

use tollkeeper::mail::store::mail_counters::Sender;
use tollkeeper::mail::store::outbox::Template;
use tracing_subscriber::fmt::MakeWriter;

use support::database::Fresh;
use support::http::Call;
use support::replica::Process;
use support::smtp::{self, MailServer, UnusedPort, make_certificates, token, until};
use support::world::{ALLOW_FSYNC_OFF, Folder, PASSWORD, World, config, runtime};
use support::{Database, on_each_database};

const ADA: &str = "ada@example.com";

fn registration_of_ada() -> Value {
    json!({"email": ADA, "password": PASSWORD, "username": "ada"})
}

/// Runs a test with a new mail server.
fn with_server(database: Database, what: &str, flags: &[&str], test: impl AsyncFnOnce(World, MailServer)) {
    let Some(python) = smtp::python(what) else { return };
    on_url(database, async |backend, database_url| {
        let server = MailServer::start(&python, flags);
        let url = server.url();
        test(World::new(backend, database_url, &[("TOLLKEEPER_MAIL__URL", &url)]).await, server).await;
    });
}

/// Runs a test with the name and the URL, if any, of a new database.
fn on_url(database: Database, test: impl AsyncFnOnce(&'static str, Option<String>)) {
    database.block_on(async {
        let Fresh { backend, url } = database.fresh().await;
        test(backend, url).await;
    });
}

/// The log of this thread while it is captured.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let builder = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE);
        tracing::subscriber::set_default(builder.with_writer(self.clone()).finish())
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Adds an e-mail without a link to the outbox, for a new recipient.
async fn write_to(world: &World, name: &str) {
    world.user(name).await;
    let now = world.clock.now();
    let mut tx = world.app.db.write().await.unwrap();
    let address = format!("{name}@example.com");
    let (sender, draft) = (Sender { account: None, address: None }, Draft::plain(Template::PasswordChanged));
    world.app.outbox.post(&mut tx, &sender, &draft, &address, now).await.unwrap();
    tx.commit().await.unwrap();
}

async fn count_waiting(app: &App) -> i64 {
    tollkeeper::mail::store::outbox::count(&mut app.db.read().await.unwrap()).await.unwrap()
}

fn count_failed(world: &World) -> u64 {
    world.app.metrics.mails_failed.get()
}

fn count_given_up(world: &World) -> u64 {
    world.app.metrics.mails_given_up.get()
}

/// Registers Ada with a server process whose mail server requires TLS and a login.
async fn register_over(python: &std::path::Path, tls: &str, scheme: &str) {
    let folder = Folder::new();
    make_certificates(&folder.0);
    let [ca, certificate, key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| folder.0.join(name).to_str().unwrap().to_owned());
    let flags =
        ["--tls", tls, "--certificate", &certificate, "--key", &key, "--login", "keeper@test:p:w/d%1"];
    let server = MailServer::start(python, &flags);
    let url = format!("{scheme}://keeper%40test:p%3Aw%2Fd%251@localhost:{}", server.port);
    let environment = [
        ("SSL_CERT_FILE", ca.as_str()),
        ("TOLLKEEPER_MAIL__URL", &url),
        ("TOLLKEEPER_MAIL__FROM", "Keeper <keeper@example.org>"),
    ];
    let data = Folder::new();
    let process = Process::start(&data.0, &environment).await;
    let (status, registered) = process.post("/v1/auth/register", &registration_of_ada());
    assert_eq!((status, &registered["data"]["verification_email_sent"]), (200, &json!(true)));
    let mail = until("the mail", || server.mails().pop()).await;
    assert_eq!(mail["to"], json!([ADA]));
    assert_eq!(mail["from"], "keeper@example.org");
    assert_eq!((&mail["tls"], &mail["login"]), (&json!(true), &json!("keeper@test")));
    let (status, verified) = process.post("/v1/auth/verify-email", &json!({"token": token(&mail)}));
    assert_eq!((status, &verified["data"]["verified"]), (200, &json!(true)));
    let log = until("the log", || Some(process.log()).filter(|log| log.contains("mail sent"))).await;
    for secret in [token(&mail).as_str(), ADA, "p:w/d%1", "p%3Aw"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}

#[test]
fn mail_arrives_by_starttls_and_by_tls_and_its_token_works() {
    let Some(python) = smtp::python("mail by TLS") else { return };
    runtime().block_on(async {
        register_over(&python, "starttls", "smtp").await;
        register_over(&python, "implicit", "smtps").await;
    });
}

#[test]
fn untrusted_certificate_is_refused() {
    let Some(python) = smtp::python("mail by TLS") else { return };
    runtime().block_on(async {
        let [known, unknown] = [Folder::new(), Folder::new()];
        make_certificates(&known.0);
        make_certificates(&unknown.0);
        let [ca, certificate, key] =
            [known.0.join("ca.pem"), unknown.0.join("server.pem"), unknown.0.join("server.key")]
                .map(|path| path.to_str().unwrap().to_owned());
        for (tls, scheme) in [("starttls", "smtp"), ("implicit", "smtps")] {
            let server =
                MailServer::start(&python, &["--tls", tls, "--certificate", &certificate, "--key", &key]);
            let url = format!("{scheme}://localhost:{}", server.port);
            let environment = [("SSL_CERT_FILE", ca.as_str()), ("TOLLKEEPER_MAIL__URL", &url)];
            let data = Folder::new();
            let process = Process::start(&data.0, &environment).await;
            assert_eq!(process.post("/v1/auth/register", &registration_of_ada()).0, 200);
            let refused = |log: &String| {
                log.contains("sending an e-mail failed") && log.contains("invalid peer certificate")
            };
            until("the refusal", || Some(process.log()).filter(refused)).await;
            assert!(!server.transcript().contains("MAIL"), "{}", server.transcript());
        }
    });
}

#[on_each_database]
fn nothing_is_sent_without_starttls(database: Database) {
    let Some(python) = smtp::python("mail without STARTTLS") else { return };
    on_url(database, async |backend, database_url| {
        let server = MailServer::start(&python, &["--login", "keeper:hunter2"]);
        let url = format!("smtp://keeper:hunter2@127.0.0.1:{}", server.port);
        let world = World::new(backend, database_url, &[("TOLLKEEPER_MAIL__URL", &url)]).await;
        let logs = CapturedLog::default();
        let _capture = logs.capture();
        write_to(&world, "ada").await;
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
        assert_eq!((count_failed(&world), count_waiting(&world.app).await), (1, 1));
        assert!(logs.text().contains("STARTTLS is not supported on this server"), "{}", logs.text());
        let transcript = server.transcript();
        let commands: Vec<_> = transcript.lines().filter_map(|line| line.split_once(">> ")).collect();
        let commands: Vec<_> = commands.iter().map(|(_, command)| command.get(2..6).unwrap()).collect();
        assert_eq!(commands, ["EHLO"], "{transcript}");
    });
}

#[test]
fn rejected_login_is_retried() {
    let Some(python) = smtp::python("a wrong login") else { return };
    runtime().block_on(async {
        let folder = Folder::new();
        make_certificates(&folder.0);
        let [ca, certificate, key] = ["ca.pem", "server.pem", "server.key"]
            .map(|name| folder.0.join(name).to_str().unwrap().to_owned());
        let flags =
            ["--tls", "implicit", "--certificate", &certificate, "--key", &key, "--login", "me:right"];
        let server = MailServer::start(&python, &flags);
        let url = format!("smtps://me:hunter2@localhost:{}", server.port);
        let environment = [("SSL_CERT_FILE", ca.as_str()), ("TOLLKEEPER_MAIL__URL", &url)];
        let data = Folder::new();
        let process = Process::start(&data.0, &environment).await;
        assert_eq!(process.post("/v1/auth/register", &registration_of_ada()).0, 200);
        let refused = |log: &String| log.contains("the mail server refused: 535 5.7.8");
        let log = until("the refusal", || Some(process.log()).filter(refused)).await;
        assert!(
            log.contains("sending an e-mail failed") && !log.contains("gave up sending an e-mail"),
            "{log}"
        );
        assert!(!log.contains("hunter2"), "{log}");
    });
}

#[on_each_database]
fn retries_back_off_until_the_server_is_back(database: Database) {
    let Some(python) = smtp::python("a mail server that is down") else { return };
    on_url(database, async |backend, database_url| {
        let unused_port = UnusedPort::new();
        let port = unused_port.port();
        let url = format!("smtp://127.0.0.1:{port}?tls=none");
        let world = World::new(backend, database_url, &[("TOLLKEEPER_MAIL__URL", &url)]).await;
        let registered = world.post("/v1/auth/register", &registration_of_ada()).data().await;
        assert_eq!(registered["verification_email_sent"], true);
        send_due(&world.app.mail).await.unwrap();
        for (attempts, wait_s) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
            assert_eq!(count_failed(&world), attempts);
            world.clock.advance_ms(wait_s * SECOND_MS - 1);
            assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
            assert_eq!(count_failed(&world), attempts, "not before its time");
            world.clock.advance_ms(1);
            assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
        }
        assert_eq!((count_failed(&world), count_waiting(&world.app).await), (5, 1));
        drop(unused_port);
        let server = MailServer::start(&python, &["--port", &port.to_string()]);
        world.clock.advance_ms(160 * SECOND_MS);
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 1);
        let [mail] = server.mails().try_into().unwrap();
        world.post("/v1/auth/verify-email", &json!({"token": token(&mail)})).data().await;
        assert_eq!((count_given_up(&world), count_waiting(&world.app).await), (0, 0));
    });
}

#[on_each_database]
fn mail_is_dropped_after_a_day(database: Database) {
    on_url(database, async |backend, database_url| {
        let unused_port = UnusedPort::new();
        let url = format!("smtp://127.0.0.1:{}?tls=none", unused_port.port());
        let world = World::new(backend, database_url, &[("TOLLKEEPER_MAIL__URL", &url)]).await;
        let logs = CapturedLog::default();
        let _capture = logs.capture();
        write_to(&world, "ada").await;
        let begin = world.clock.now();
        while count_given_up(&world) == 0 {
            assert_eq!(count_waiting(&world.app).await, 1);
            assert!(!logs.text().contains("ERROR"), "{}", logs.text());
            world.clock.advance_ms(HOUR_MS);
            assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
        }
        assert_eq!(
            world.clock.now(),
            begin.plus_ms(DAY_MS - HOUR_MS),
            "the next attempt would be a day after"
        );
        assert_eq!(count_waiting(&world.app).await, 0);
        let text = logs.text();
        let line = text.lines().find(|line| line.contains("ERROR")).unwrap();
        for part in ["gave up sending an e-mail", "mail_id=mail_", "password_changed", "Connection refused"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!text.contains("ada"), "{text}");
        let metrics = Call::new(&world.service, Method::GET, "/metrics");
        let metrics = metrics.bearer(world.app.api.service_token.expose()).send().await.text;
        assert!(metrics.contains("\ntollkeeper_mails_given_up_total 1\n"), "{metrics}");
    });
}

#[on_each_database]
fn refused_recipient_is_dropped_at_once_and_others_get_their_mail(database: Database) {
    let flags = ["--refuse", "gone", "--defer", "later", "--refuse-content", "spam"];
    with_server(database, "refused recipients", &flags, async |world, server| {
        let logs = CapturedLog::default();
        let _capture = logs.capture();
        for name in ["gone", "later", "spam", "ada", "bob"] {
            write_to(&world, name).await;
            world.clock.advance_ms(1);
        }
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 2);
        assert_eq!(server.mails().len(), 2);
        assert_eq!((server.mails_to(ADA).len(), server.mails_to("bob@example.com").len()), (1, 1));
        assert_eq!(
            (count_given_up(&world), count_failed(&world), count_waiting(&world.app).await),
            (2, 1, 1)
        );
        let text = logs.text();
        for reason in ["550 5.1.1", "451 4.7.1", "554 5.6.0"] {
            assert!(text.contains(&format!("the mail server refused: {reason}")), "{reason}: {text}");
        }
        for name in ["gone", "later", "spam", "ada", "bob"] {
            assert!(!text.contains(&format!("{name}@")), "{text}");
        }
    });
}

/// The operator can fix both, so the e-mail isn't dropped.
#[on_each_database]
fn refused_sender_or_connection_is_retried(database: Database) {
    with_server(database, "a refused sender", &["--refuse-sender", "tollkeeper"], async |world, server| {
        write_to(&world, "ada").await;
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
        assert!(server.transcript().contains("MAIL"), "{}", server.transcript());
        assert_eq!((count_failed(&world), count_given_up(&world)), (1, 0));
    });
    on_url(database, async |backend, database_url| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}?tls=none", listener.local_addr().unwrap());
        let world = World::new(backend, database_url, &[("TOLLKEEPER_MAIL__URL", &url)]).await;
        let refusing = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(b"554 5.7.1 no service for 127.0.0.1\r\n").await.unwrap();
        });
        let logs = CapturedLog::default();
        let _capture = logs.capture();
        write_to(&world, "ada").await;
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
        refusing.await.unwrap();
        assert_eq!((count_failed(&world), count_given_up(&world)), (1, 0));
        assert!(logs.text().contains("the mail server refused: 554 5.7.1"), "{}", logs.text());
        assert!(!logs.text().contains("no service"), "{}", logs.text());
    });
}

#[on_each_database]
fn server_reply_with_the_mails_link_is_not_logged(database: Database) {
    with_server(
        database,
        "a reply that contains the mail",
        &["--refuse-content", "ada"],
        async |world, _server| {
            let logs = CapturedLog::default();
            let _capture = logs.capture();
            world.post("/v1/auth/register", &registration_of_ada()).data().await;
            assert_eq!(send_due(&world.app.mail).await.unwrap(), 0);
            let text = logs.text();
            assert!(text.contains("gave up sending an e-mail") && text.contains("554 5.6.0"), "{text}");
            assert!(!text.contains("token=") && !text.contains(ADA) && !text.contains("Hello"), "{text}");
        },
    );
}

#[on_each_database]
fn connections_are_reused(database: Database) {
    with_server(database, "connections", &[], async |world, server| {
        for name in ["ada", "bob"] {
            write_to(&world, name).await;
            assert_eq!(send_due(&world.app.mail).await.unwrap(), 1);
        }
        let peers: Vec<_> = server.mails().into_iter().map(|mail| mail["peer"].clone()).collect();
        assert_eq!(peers[0], peers[1]);
        // The server closes the idle connection. The next e-mail opens a new one.
        let port = server.port.to_string();
        drop(server);
        let server = MailServer::start(&smtp::python("connections").unwrap(), &["--port", &port]);
        write_to(&world, "cyd").await;
        assert_eq!((send_due(&world.app.mail).await.unwrap(), count_failed(&world)), (1, 0));
        assert_eq!(server.mails_to("cyd@example.com").len(), 1);
    });
}

#[on_each_database]
fn slow_server_delays_neither_requests_nor_other_mails(database: Database) {
    with_server(database, "a slow mail server", &["--slow", "slow"], async |world, server| {
        for name in ["slow1", "slow2", "slow3", "slow4", "slow5", "slow6", "slow7"] {
            write_to(&world, name).await;
        }
        let begin = Instant::now();
        let jobs = tokio::spawn(jobs::run(world.app.clone()));
        until("the slow ones", || (server.transcript().matches("RCPT").count() == 7).then_some(())).await;
        world.post("/v1/auth/register", &registration_of_ada()).data().await;
        world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
        until("the others", || (server.mails_to(ADA).len() == 2).then_some(())).await;
        assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
        assert_eq!(count_failed(&world), 0, "the slow e-mails are still in progress");
        if world.backend == "sqlite" {
            tokio::time::sleep_until((begin + Duration::from_secs(25)).into()).await;
            until("the timeout", || (count_failed(&world) == 7).then_some(())).await;
            assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
            // The slow connections still wait for an answer. Later e-mails use others.
            world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
            until("one more", || (server.mails_to(ADA).len() == 3).then_some(())).await;
            assert_eq!(count_failed(&world), 7);
        }
        jobs.abort();
    });
}

#[on_each_database]
fn two_replicas_send_each_mail_once(database: Database) {
    with_server(database, "two replicas", &[], async |world, server| {
        let names: Vec<_> = (0..40).map(|n| format!("user{n}")).collect();
        for name in &names {
            write_to(&world, name).await;
        }
        let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        other.boot().await.unwrap();
        let [one, two] = [world.app.clone(), other].map(|app| {
            tokio::spawn(async move {
                let mut sent = 0;
                // A replica that tries to take the same e-mails at the same time gets none, and retries.
                while count_waiting(&app).await > 0 {
                    sent += send_due(&app.mail).await.unwrap();
                }
                sent
            })
        });
        let sent = [one.await.unwrap(), two.await.unwrap()];
        assert_eq!(sent[0] + sent[1], 40, "{sent:?}");
        assert!(sent.iter().all(|sent| *sent > 0), "both replicas sent e-mails: {sent:?}");
        let mut to: Vec<_> =
            server.mails().iter().map(|mail| mail["to"][0].as_str().unwrap().to_owned()).collect();
        to.sort();
        let mut expected: Vec<_> = names.iter().map(|name| format!("{name}@example.com")).collect();
        expected.sort();
        assert_eq!(to, expected);
    });
}

/// Each sender takes a different number of e-mails, so their choices overlap partly.
#[on_each_database]
fn concurrent_senders_do_not_deadlock(database: Database) {
    on_url(database, async |backend, database_url| {
        let world = World::new(backend, database_url, &[]).await;
        for n in 0..60 {
            write_to(&world, &format!("user{n}")).await;
        }
        let now = world.clock.now();
        let takers = (1..=3).map(|first| {
            let app = world.app.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    let mut tx = app.db.write().await.unwrap();
                    let most = (first + round * 3) % 8 + 1;
                    let mails =
                        tollkeeper::mail::store::outbox::claim(&mut tx, most, now, now.plus_ms(MINUTE_MS))
                            .await;
                    let mails = mails.unwrap_or_else(|error| panic!("{backend}, round {round}: {error}"));
                    tx.commit().await.unwrap();
                    for mail in mails {
                        let mut tx = app.db.write().await.unwrap();
                        tollkeeper::mail::store::outbox::retry_at(&mut tx, mail.id, now, "").await.unwrap();
                        tx.commit().await.unwrap();
                    }
                }
            })
        });
        for taker in takers.collect::<Vec<_>>() {
            taker.await.unwrap();
        }
    });
}

#[on_each_database]
fn mail_survives_a_process_killed_while_sending_it(database: Database) {
    let Some(python) = smtp::python("a killed process") else { return };
    on_url(database, async |_, database_url| {
        let slow = MailServer::start(&python, &["--slow", "ada"]);
        let data = Folder::new();
        let mut environment = vec![("TOLLKEEPER_MAIL__URL", slow.url())];
        environment.extend(database_url.clone().map(|url| ("TOLLKEEPER_DATABASE_URL", url)));
        environment.extend(database_url.is_some().then(|| (ALLOW_FSYNC_OFF, "true".to_owned())));
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let process = Process::start(&data.0, &environment).await;
        assert_eq!(process.post("/v1/auth/register", &registration_of_ada()).0, 200);
        until("the attempt", || slow.transcript().contains("RCPT").then_some(())).await;
        process.kill();
        drop(slow);

        // The next process must wait two minutes for the e-mail that the dead one holds.
        let server = MailServer::start(&python, &[]);
        let clock = Clock::fixed(Clock::System.now().plus_ms(MINUTE_MS));
        let settings = [("TOLLKEEPER_MAIL__URL", server.url())];
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let app = App::new(config(&data.0, database_url, &settings), clock.clone()).unwrap();
        app.boot().await.unwrap();
        assert_eq!((send_due(&app.mail).await.unwrap(), count_waiting(&app).await), (0, 1));
        clock.advance_ms(MINUTE_MS);
        assert_eq!((send_due(&app.mail).await.unwrap(), count_waiting(&app).await), (1, 0));
        let [mail] = server.mails().try_into().unwrap();
        let public = tollkeeper::api::routes::dispatcher(&app.api, Listener::Public);
        let verify = Call::new(&public, Method::POST, "/v1/auth/verify-email");
        verify.json(&json!({"token": token(&mail)})).data().await;
    });
}

#[on_each_database]
fn names_and_addresses_add_no_header_or_recipient(database: Database) {
    with_server(database, "header injection", &[], async |world, server| {
        let attack = "\r\nBcc: eve@example.com\r\n\r\n.\r\nRCPT TO:<eve@example.com>\r\n";
        for field in ["email", "username", "full_name"] {
            let mut body = registration_of_ada();
            body[field] = json!(format!("{}{attack}", body[field].as_str().unwrap_or("Ada")));
            assert_eq!(world.post("/v1/auth/register", &body).refused().await.0, 400, "{field}");
        }
        // Inserts values that registration refuses, as an older version or another program could have done.
        let now = world.clock.now();
        let username = format!("ada{attack}");
        let new = tollkeeper::accounts::store::users::NewUser {
            id: UserId::new(now, &world.app.random),
            email: ADA,
            email_folded: ADA,
            username: &username,
            username_folded: &username,
            full_name: Some(&username),
            phone: None,
            password_hash: Some(""),
        };
        let mut tx = world.app.db.write().await.unwrap();
        tollkeeper::accounts::store::users::insert(&mut tx, &new, now).await.unwrap();
        tx.commit().await.unwrap();
        world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
        assert_eq!(send_due(&world.app.mail).await.unwrap(), 1);
        let [mail] = server.mails().try_into().unwrap();
        assert_eq!(mail["to"], json!([ADA]));
        let content = mail["content"].as_str().unwrap();
        let (headers, _) = content.split_once("\r\n\r\n").unwrap();
        let mut names: Vec<_> = headers
            .split("\r\n")
            .filter(|line| !line.starts_with(' '))
            .map(|l| l.split(':').next().unwrap())
            .collect();
        names.sort_unstable();
        let expected =
            ["Auto-Submitted", "Content-Type", "Date", "From", "MIME-Version", "Message-ID", "Subject", "To"];
        assert_eq!(names, expected, "{headers}");
        assert!(!content.contains("\nBcc") && !content.contains("\nRCPT"), "{content}");
        assert_eq!(server.transcript().matches("RCPT").count(), 1, "{}", server.transcript());
    });
}
