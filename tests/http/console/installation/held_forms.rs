//! Forms of operators whose proof of identity expires while they type.

use tollkeeper::clock::MINUTE_MS;
use tollkeeper::operators::roles;
use tollkeeper::trail::Trail;

use super::{TOP, entries};
use crate::console::pages::check_headers;
use support::console::{Browser, assert_escaped, hidden_fields};
use support::http::Answer;
use support::on_each_database;
use support::world::{PASSWORD, World};

/// Returns the browser of an operator whose proof of identity has expired, and their recovery codes.
async fn scene(world: &World) -> (Browser, Vec<String>) {
    let opal = world.user("opal").await;
    let (_, codes) = world.add_authenticator_now(&opal.access_token).await;
    roles::grant(&world.app.operators, opal.id, &Trail::operator()).await.unwrap();
    let browser = world.browser(opal.id).await;
    world.clock.advance_ms(15 * MINUTE_MS);
    world.catch_up().await;
    (browser, codes)
}

/// Checks the page that keeps a form, and returns the fields that it sends again.
fn check_kept(answer: &Answer, path: &str, fields: &[(&str, &str)]) -> Vec<(String, String)> {
    assert_eq!(answer.status, 403, "{}", answer.text);
    check_headers(answer, path);
    let page = &answer.text;
    assert!(page.contains("<h1>Confirm that it’s you</h1>"), "{page}");
    assert!(page.contains(&format!("<form method=\"post\" action=\"{path}\">")), "{page}");
    let link = format!("href=\"/console/reauthenticate?next={path}\" target=\"_blank\" rel=\"noopener\"");
    assert!(page.contains(&link) && page.contains(">Send it again</button>"), "{page}");
    let kept = hidden_fields(page);
    let sent: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(kept, sent);
    kept
}

async fn send(browser: &Browser, world: &World, path: &str, fields: &[(String, String)]) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post(world, path, &fields).send().await
}

#[on_each_database]
async fn what_was_typed_is_kept_until_they_have_proved_it_again(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (mut browser, codes) = scene(&world).await;
    let here = format!("{TOP}/organizations/{}", place.organization);
    let path = format!("{here}/credit");
    let fields = [("amount", "25.00"), ("reference", "R-1"), ("kind", "grant"), ("name", "Acme")];
    let answer = browser.post(&world, &path, &fields).send().await;
    let kept = check_kept(&answer, &path, &fields);
    // Without a new proof, the form is only kept again.
    check_kept(&send(&browser, &world, &path, &kept).await, &path, &fields);
    assert!(entries(&world, "credit.added").await.is_empty(), "nothing has changed");

    let stale = browser.clone();
    let proof = [("password", PASSWORD), ("one_time_code", &codes[0]), ("next", &path)];
    let proved = browser.post(&world, "/console/reauthenticate", &proof).send().await;
    assert_eq!((proved.status, proved.header("location")), (303, path.as_str()), "{}", proved.text);
    browser.take(&proved);
    let done = send(&browser, &world, &path, &kept).await;
    let to = format!("{here}?done=credit_added");
    assert_eq!((done.status, done.header("location")), (303, to.as_str()), "{}", done.text);
    assert_eq!(entries(&world, "credit.added").await.len(), 1);
    // The session from before the proof has ended: the page with status 401 keeps the form too.
    let ended = send(&stale, &world, &path, &kept).await;
    assert_eq!((ended.status, hidden_fields(&ended.text)), (401, kept));
}

#[on_each_database]
async fn every_form_of_an_installation_is_kept(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let invoice = support::billed::invoice(&world, &place.organization).await;
    let (browser, _) = scene(&world).await;
    let name = "<b>\"Ada\"</b> & 'co'";
    let (user, organization) = (format!("users/{}", ada.id), format!("organizations/{}", place.organization));
    for page in [
        format!("{user}/disable"),
        format!("{user}/enable"),
        format!("{user}/end-sessions"),
        format!("{user}/reset-second-factor"),
        format!("{organization}/credit-limit"),
        format!("invoices/{invoice}/mark-paid"),
        format!("invoices/{invoice}/void"),
    ] {
        let path = format!("{TOP}/{page}");
        let fields = [("amount", "1"), ("name", name)];
        let answer = browser.post(&world, &path, &fields).send().await;
        check_kept(&answer, &path, &fields);
        assert_escaped(&answer.text, name);
    }
    let path = format!("{TOP}/mail/test");
    let answer = browser.post(&world, &path, &[("email", "ops@example.com")]).send().await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    assert_eq!(hidden_fields(&answer.text), [("email".to_owned(), "ops@example.com".to_owned())]);
    // Other users get no information, and a form from another site is refused first.
    let path = format!("{TOP}/users/{}/disable", ada.id);
    let stranger = world.browser(ada.id).await;
    assert_eq!(stranger.post(&world, &path, &[("name", "ada")]).send().await.status, 404);
    let call = browser.post(&world, &path, &[("name", "ada")]).header("sec-fetch-site", "cross-site");
    let foreign = call.send().await;
    assert_eq!((foreign.status, hidden_fields(&foreign.text)), (403, vec![]));
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
}
