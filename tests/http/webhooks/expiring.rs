//! Events for API keys that expire soon.

use http::Method;
use serde_json::json;
use tollkeeper::clock::{DAY_MS, MINUTE_MS};
use tollkeeper::keys::expiring::announce_due;

use super::{hook, run_on, send};
use support::receiver::{OK, Receiver};
use support::{Database, on_each_database};

#[on_each_database]
fn key_that_expires_within_a_week_is_announced_once(database: Database) {
    run_on(database, async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let receiver = Receiver::start(OK).await;
        hook(&world, &ada, &place, &receiver.url(), &["api_key.expiring"]).await;
        let now = world.clock.now();
        let ends = [7 * DAY_MS + MINUTE_MS, 8 * DAY_MS].map(|ms| now.plus_ms(ms).to_string());
        let soon = world.key(&ada, &place, &json!({"name": "soon", "expires_at": ends[0]})).await.0;
        world.key(&ada, &place, &json!({"name": "later", "expires_at": ends[1]})).await;
        world.key(&ada, &place, &json!({"name": "never"})).await;
        let keys = &world.app.keys;
        assert_eq!(announce_due(keys).await.unwrap(), 0);
        world.clock.advance_ms(MINUTE_MS);
        // Two replicas look for keys at the same time.
        let pair = tokio::join!(announce_due(keys), announce_due(keys));
        assert_eq!(pair.0.unwrap() + pair.1.unwrap(), 1);
        send(&world).await;
        let received = receiver.take();
        let events: Vec<_> = received.iter().map(|request| (request.event(), request.json())).collect();
        let data = json!({"organization_id": place.organization, "project_id": place.project, "api_key_id": soon,
            "expires_at": ends[0]});
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].0.as_str(), &events[0].1["data"]), ("api_key.expiring", &data));

        // Deleted and expired keys aren't announced.
        let gone = now.plus_ms(2 * DAY_MS).to_string();
        let gone = world.key(&ada, &place, &json!({"name": "gone", "expires_at": gone})).await.0;
        let path = format!("{}/api-keys/{gone}", place.project_path());
        world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
        assert_eq!(announce_due(keys).await.unwrap(), 0);
        world.clock.advance_ms(9 * DAY_MS);
        tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
        send(&world).await;
        assert_eq!(receiver.received().len(), 0);
    });
}
