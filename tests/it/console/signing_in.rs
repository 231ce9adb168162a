//! Into the console, and out of it.

use serde_json::json;

use crate::support::console::Browser;
use crate::support::world::{PASSWORD, World, on_each_database};

const SIGN_IN: &str = "/console/sign-in";

async fn register(world: &World) {
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
    world.post("/v1/auth/register", &body).data().await;
}

#[test]
fn person_signs_in_makes_an_organization_and_signs_out() {
    on_each_database(async |world| {
        register(&world).await;
        let mut browser = Browser::signed_out();
        let answer = browser.get(&world, "/").send().await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/"));
        let answer = browser.get(&world, "/console/organizations/new?a=b").send().await;
        let sign_in = "/console/sign-in?next=/console/organizations/new%3Fa%3Db";
        assert_eq!((answer.status, answer.header("location")), (303, sign_in));
        let page = browser.page(&world, sign_in).await;
        assert!(page.contains(r#"name="next" value="/console/organizations/new?a=b""#), "{page}");

        let fields = [
            ("email", "Ada@Example.com "),
            ("password", PASSWORD),
            ("next", "/console/organizations/new?a=b"),
        ];
        let answer = browser.post(&world, SIGN_IN, &fields).send().await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/organizations/new?a=b"));
        browser.take(&answer);
        let answer = browser.get(&world, "/console/").send().await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/organizations"));
        assert!(browser.page(&world, "/console/organizations").await.contains("Create an organization"));

        let place = browser
            .done(&world, "/console/organizations/new", &[("name", "Acme"), ("description", "")])
            .await;
        let page = browser.page(&world, &place).await;
        assert!(page.contains("The organization is ready.") && page.contains("<h1>Acme</h1>"), "{page}");
        let answer = browser.get(&world, "/console").send().await;
        assert_eq!(format!("{}?done=organization_created", answer.header("location")), place);

        let answer = browser.post(&world, "/console/sign-out", &[]).send().await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/sign-in?done=signed_out"));
        assert_eq!(answer.header("clear-site-data"), "\"cache\"");
        let signed_out = browser.get(&world, &place).send().await;
        assert_eq!(signed_out.status, 303, "the session has ended, whatever the browser sends");
        browser.take(&answer);
        assert_eq!(browser.cookie, "");
        assert!(browser.page(&world, answer.header("location")).await.contains("You are signed out."));
    });
}
