//! A form that is sent again while its answer is pending: simultaneous requests make a single change.

use futures_util::future::join_all;
use serde_json::json;

use support::console::{Browser, hidden};
use support::http::Answer;
use support::on_each_database;
use support::world::{Place, TestUser, World};

/// Number of times that each form is sent.
const TIMES: usize = 6;

struct Scene {
    ada: TestUser,
    browser: Browser,
    place: Place,
}

impl Scene {
    fn page(&self, path: &str) -> String {
        format!("/console/organizations/{}{path}", self.place.organization)
    }

    fn project_page(&self, path: &str) -> String {
        self.page(&format!("/projects/{}{path}", self.place.project))
    }

    /// Sends a form several times simultaneously; returns each status with the number of its answers.
    async fn send(&self, world: &World, path: &str, fields: &[(&str, &str)]) -> Vec<(u16, usize)> {
        let sent = (0..TIMES).map(|_| tokio::spawn(self.browser.post(world, path, fields).send()));
        let answers: Vec<Answer> = join_all(sent).await.into_iter().map(Result::unwrap).collect();
        let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        statuses.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect()
    }

    /// Counts the entries of a list of the API.
    async fn count(&self, world: &World, path: &str) -> i64 {
        let data = world.get(path).bearer(&self.ada.access_token).data().await;
        data["total"].as_i64().unwrap()
    }
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn form_that_is_sent_several_times_at_once_is_done_once(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "acme").await;
    let browser = world.browser(ada.id).await;
    let (organization, project) = (place.organization_path(), place.project_path());
    let (id, _) = world.key(&ada, &place, &json!({"name": "old"})).await;
    let scene = Scene { ada, browser, place };

    // The first request creates the object; the other requests are refused because it exists.
    let once = vec![(303, 1), (409, TIMES - 1)];
    let made = scene.send(&world, "/console/organizations/new", &[("name", "Twice")]).await;
    assert_eq!((made, scene.count(&world, "/v1/organizations").await), (once.clone(), 2));
    let made = scene.send(&world, &scene.page("/projects/new"), &[("name", "Twice")]).await;
    assert_eq!((made, scene.count(&world, &format!("{organization}/projects")).await), (once.clone(), 2));
    let invitation = [("email", "guest@example.com"), ("role", "member")];
    let made = scene.send(&world, &scene.page("/members/invite"), &invitation).await;
    assert_eq!((made, scene.count(&world, &format!("{organization}/invitations")).await), (once, 1));

    let shown = vec![(200, 1), (409, TIMES - 1)];
    let keys = scene.project_page("/api-keys");
    let page = scene.browser.page(&world, &format!("{keys}/new")).await;
    let new_id = hidden(&page, "new_id");
    let fields = [("new_id", new_id.as_str()), ("name", "Twice"), ("lasts", "always")];
    let made = scene.send(&world, &format!("{keys}/new"), &fields).await;
    assert_eq!((made, scene.count(&world, &format!("{project}/api-keys")).await), (shown.clone(), 2));
    let rotate = format!("{keys}/{id}/rotate");
    let version = hidden(&scene.browser.page(&world, &rotate).await, "version");
    let fields = [("version", version.as_str()), ("grace_seconds", "3600")];
    assert_eq!(scene.send(&world, &rotate, &fields).await, shown);

    let webhooks = scene.page("/webhooks");
    let new_id = hidden(&scene.browser.page(&world, &format!("{webhooks}/new")).await, "new_id");
    let fields = [("new_id", new_id.as_str()), ("url", "https://example.com"), ("events", "invoice.paid")];
    let made = scene.send(&world, &format!("{webhooks}/new"), &fields).await;
    let list = format!("{organization}/webhooks");
    assert_eq!((made, scene.count(&world, &list).await), (shown.clone(), 1));
    let data = world.get(&list).bearer(&scene.ada.access_token).data().await;
    let webhook = data["webhooks"][0]["id"].as_str().unwrap().to_owned();
    let rotate = format!("{webhooks}/{webhook}/rotate");
    let version = hidden(&scene.browser.page(&world, &rotate).await, "version");
    assert_eq!(scene.send(&world, &rotate, &[("version", &version)]).await, shown);
    // The event is sent once, and all requests get the same answer.
    let new_id = hidden(&scene.browser.page(&world, &format!("{webhooks}/{webhook}")).await, "new_id");
    let tested = scene.send(&world, &format!("{webhooks}/{webhook}/test"), &[("new_id", &new_id)]).await;
    let sent = scene.count(&world, &format!("{list}/{webhook}/deliveries")).await;
    assert_eq!((tested, sent), (vec![(303, TIMES)], 1));

    // The key is deleted once, regardless of which request was first.
    let deleted = scene.send(&world, &format!("{keys}/{id}/delete"), &[]).await;
    assert_eq!(deleted, [(303, 1), (404, TIMES - 1)]);
    assert_eq!(scene.count(&world, &format!("{project}/api-keys")).await, 1);
}
