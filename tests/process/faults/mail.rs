//! A mail server that is down for hours, and three replicas that retry.

use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::db::sql;
use tollkeeper::mail::sending::send_due;

use support::chance::number;
use support::smtp::{self, MailServer, UnusedPort};
use support::world::{World, runtime};
use support::{Database, on_each_database};

#[on_each_database]
fn mails_survive_a_long_outage_and_are_sent_once(database: Database) {
    let hours = i64::try_from(number("TOLLKEEPER_TEST_HOURS").unwrap_or(6)).unwrap();
    let Some(python) = smtp::python("hours without a mail server") else { return };
    database.run_processes(|url, _| {
        runtime().block_on(async {
            let unused_port = UnusedPort::new();
            let port = unused_port.port();
            let mail_url = format!("smtp://127.0.0.1:{port}?tls=none");
            let (backend, url) = (if url.is_some() { "postgres" } else { "sqlite" }, url.map(str::to_owned));
            let world = World::new(backend, url, &[("TOLLKEEPER_MAIL__URL", &mail_url)]).await;
            let mut apps = vec![world.app.clone()];
            for _ in 0..2 {
                let app = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
                app.boot().await.unwrap();
                apps.push(app);
            }
            let names: Vec<_> = (0..12).map(|number| format!("user{number}")).collect();
            for name in &names {
                world.user(name).await;
                let body = json!({"email": format!("{name}@example.com")});
                world.post("/v1/auth/forgot-password", &body).data().await;
            }
            for _ in 0..hours * 60 {
                let sent =
                    tokio::join!(send_due(&apps[0].mail), send_due(&apps[1].mail), send_due(&apps[2].mail));
                assert_eq!((sent.0.unwrap(), sent.1.unwrap(), sent.2.unwrap()), (0, 0, 0));
                world.clock.advance_ms(MINUTE_MS);
            }
            let attempts: Vec<(i64,)> = sql("SELECT attempts FROM outbox")
                .all(&mut world.app.db.read().await.unwrap())
                .await
                .unwrap();
            assert_eq!(attempts.len(), names.len(), "no e-mail is given up");
            // Ten attempts within the first two hours, and then one per hour. The test runs the job once a
            // minute, so some attempts are slightly late.
            let due = 8 + hours;
            assert!(attempts.iter().all(|(n,)| (due - 2..=due + 1).contains(n)), "{attempts:?}");
            let failed: u64 = apps.iter().map(|app| app.metrics.mails_failed.get()).sum();
            assert_eq!(i64::try_from(failed).unwrap(), attempts.iter().map(|(n,)| n).sum::<i64>());

            drop(unused_port);
            let server = MailServer::start(&python, &["--port", &port.to_string()]);
            world.clock.advance_ms(HOUR_MS);
            let sent =
                tokio::join!(send_due(&apps[0].mail), send_due(&apps[1].mail), send_due(&apps[2].mail));
            let sent = sent.0.unwrap() + sent.1.unwrap() + sent.2.unwrap();
            assert_eq!(sent, names.len());
            assert_eq!(server.mails().len(), names.len());
            assert!(names.iter().all(|name| server.mails_to(&format!("{name}@example.com")).len() == 1));
            println!(
                "{backend}: {hours} hours without a mail server, {failed} attempts, {sent} mails, each once"
            );
        });
    });
}
