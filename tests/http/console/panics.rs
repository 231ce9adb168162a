//! If a handler panics, the answer is the console's error page, and no one is signed out.

use http::Method;
use tollkeeper::api::gate::{Browser as BrowserAccess, Open, OpenVisit, Person, Public, Visit, Visitor};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::console::page::Page;
use tollkeeper::console::{Console, error_pages};
use tollkeeper::error::Error;
use tollkeeper::tenants::access::PersonScope;
use tollkeeper::web::input::NoInput;
use tollkeeper::web::route::{Listener, route};

use super::pages::check_headers;
use support::console::Browser;
use support::http::Call;
use support::on_each_database;
use support::world::World;

async fn read(_: Console, _: Visit<PersonScope>, _: NoInput) -> Result<Page, Error> {
    tokio::task::yield_now().await;
    panic!("on purpose");
}

async fn create(_: Console, _: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    panic!("on purpose");
}

#[on_each_database]
async fn panic_is_answered_by_a_page_of_the_console(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "acme").await;
    let routes = [
        route(Method::GET, "/console/organizations/{organization_id}", BrowserAccess(Person), read),
        route(Method::POST, "/console/register", Open(Public::Unlimited), create),
    ];
    let routes = routes.map(|route| route.with_pages(error_pages::PAGES));
    let dispatcher = Dispatcher::new(&world.app.api, &routes, Listener::Public);
    let browser = world.browser(ada.id).await;

    let path = format!("/console/organizations/{}", place.organization);
    let answer = browser.sends(Call::new(&dispatcher, Method::GET, &path)).send().await;
    assert_eq!(answer.status, 500, "{}", answer.text);
    check_headers(&answer, &path);
    assert_eq!(answer.header("set-cookie"), "");
    for part in ["<h1>Something went wrong</h1>", "Go to the organization", ">ada<", ">acme<"] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
    assert!(!answer.text.contains("on purpose"), "{}", answer.text);

    let path = "/console/register";
    let call = Call::new(&dispatcher, Method::POST, path).header("sec-fetch-site", "same-origin");
    let answer = Browser::signed_out().sends(call.form(&[("password", "p4ssw0rd")])).send().await;
    assert_eq!(answer.status, 500, "{}", answer.text);
    check_headers(&answer, path);
    assert!(!answer.text.contains("p4ssw0rd"), "{}", answer.text);
}
