//! Kills a server repeatedly while customers pay and Stripe's events arrive. In the end each charge at Stripe
//! must be one payment, and both sides must have the same sums.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::billing::audit;
use tollkeeper::clock::Clock;
use tollkeeper::db::{Db, sql};

use support::chance::{Chance, first_seed, number};
use support::process::{Server, Start};
use support::stripe::cards::Card;
use support::stripe::webhook::Endpoint;
use support::stripe::{FakeStripe, SECRET_KEY, WEBHOOK_SECRET};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

/// Maximum time until another process has taken over the lease of a killed one and finished its work.
const SETTLED: Duration = Duration::from_secs(60);

/// Makes a request of a customer or of Stripe. The server may be down.
async fn act(chance: &mut Chance, server: &Server, token: &str, path: &str, stripe: &FakeStripe) {
    match chance.below(4) {
        0 | 1 => {
            let key = chance.below(40).to_string();
            // The same key makes the same payment, even if an earlier answer was lost.
            let body = json!({"amount": 10});
            let call = server.post(path, &body).bearer(token).header("idempotency-key", &key);
            drop(tokio::task::spawn_blocking(move || call.try_send()).await);
        }
        2 => {
            let sessions = stripe.all("checkout.session");
            let open: Vec<_> = sessions.iter().filter(|session| session["status"] == "open").collect();
            if !open.is_empty() {
                let session = open[chance.below(open.len())];
                stripe.visit(session["id"].as_str().unwrap(), &Card::visa()).unwrap();
            }
        }
        _ => deliver(server, stripe).await,
    }
}

async fn deliver(server: &Server, stripe: &FakeStripe) {
    let url = format!("http://{}/v1/billing/stripe/events", server.public);
    stripe.deliver_new(&Endpoint { url, secret: WEBHOOK_SECRET.to_owned() }).await;
}

async fn count(db: &Db, text: &'static str) -> i64 {
    let (count,): (i64,) = sql(text).one(&mut db.read().await.unwrap()).await.unwrap();
    count
}

fn kill_payments(url: Option<&str>, folder: &Folder) {
    let kills = number("TOLLKEEPER_TEST_KILLS").unwrap_or(4);
    let served = runtime();
    let stripe = served.block_on(FakeStripe::start(&Clock::System));
    let file = |name: &str, secret: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, secret).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let start = Start::new(&folder.0)
        .database(url)
        .set("TOLLKEEPER_LIMITS__ENABLED", "false")
        .set("TOLLKEEPER_PAYMENTS__STRIPE_SECRET_KEY_FILE", &file("stripe.key", SECRET_KEY))
        .set("TOLLKEEPER_PAYMENTS__STRIPE_WEBHOOK_SECRET_FILE", &file("stripe.secret", WEBHOOK_SECRET))
        .set("TOLLKEEPER_PAYMENTS__STRIPE_API_URL", &stripe.url);
    let mut server = start.run();
    let ada = server.sign_up("ada");
    let created = server.post("/v1/organizations", &json!({"name": "Acme"})).bearer(&ada.access_token).data();
    let path = format!("/v1/organizations/{}/billing/payments", created["id"].as_str().unwrap());
    let mut chance = Chance::new(first_seed());
    for _ in 0..kills {
        let until = Instant::now() + Duration::from_millis(100 + chance.below(1_500) as u64);
        served.block_on(async {
            while Instant::now() < until {
                act(&mut chance, &server, &ada.access_token, &path, &stripe).await;
            }
            // Another request is sent while the server is killed.
            let call = server.post(&path, &json!({"amount": 10})).bearer(&ada.access_token);
            let sent = tokio::task::spawn_blocking(move || call.try_send());
            tokio::time::sleep(Duration::from_millis(chance.below(8) as u64)).await;
            drop(sent);
        });
        assert_eq!(server.kill().code, None, "it died by the signal");
        server = start.run();
    }
    let db = Db::open(&start.database_settings()).unwrap();
    let charges = served.block_on(async {
        let until = Instant::now() + SETTLED;
        loop {
            deliver(&server, &stripe).await;
            let charges = stripe.charges().len() as i64;
            let open = count(&db, "SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await;
            let paid = count(&db, "SELECT COUNT(*) FROM payments WHERE status = 'succeeded'").await;
            if stripe.undelivered().is_empty() && open == 0 && paid == charges {
                return charges;
            }
            assert!(
                Instant::now() < until,
                "{charges} charges, {paid} payments, {open} events:\n{}",
                server.log()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(charges > 0, "nothing was paid");
    let credited = "SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM credits";
    let credited = served.block_on(count(&db, credited));
    assert_eq!(credited, charges * 10_000_000_000);
    assert_eq!(stripe.balance(), charges * 1_000);
    println!("{}, {kills} kills: {charges} charges", if url.is_some() { "postgres" } else { "sqlite" });
    server.stop();
    let drifts = served.block_on(async {
        let app = App::new(start.config(), Clock::System).unwrap();
        app.boot().await.unwrap();
        audit::check(&app.billing, None).await.unwrap().drifts
    });
    assert!(drifts.is_empty(), "{drifts:#?}");
}

#[on_each_database]
fn killed_servers_credit_each_payment_once(database: Database) {
    database.run_processes(kill_payments);
}
