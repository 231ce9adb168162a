//! A form that is sent after the session has ended, or while requests are limited, keeps the typed values.

use http::Method;

use support::console::Browser;
use support::on_each_database;
use support::world::World;

#[on_each_database]
async fn what_was_typed_is_kept_except_secrets(world: World) {
    let fields = [
        ("name", "A \"good\" <name>"),
        ("description", "one\r\ntwo"),
        ("settings.default_role", "admin"),
        ("permissions", "chat"),
        ("permissions", "models"),
        ("password", "p4ssw0rd"),
        ("new_password", "p4ssw0rd"),
        ("one_time_code", "p4ssw0rd"),
        ("client_SECRET", "p4ssw0rd"),
        ("token", "p4ssw0rd"),
    ];
    let answer = Browser::signed_out().post(&world, "/console/organizations/new?a=b", &fields).send().await;
    assert_eq!(answer.status, 401);
    for part in [
        "<h1>You’re signed out</h1>",
        "<form method=\"post\" action=\"/console/organizations/new?a=b\">",
        "<input type=\"hidden\" name=\"name\" value=\"A &#34;good&#34; &#60;name&#62;\">",
        "name=\"settings.default_role\" value=\"admin\"",
        "name=\"permissions\" value=\"chat\"",
        "name=\"permissions\" value=\"models\"",
        "href=\"/console/sign-in\" target=\"_blank\" rel=\"noopener\"",
        "Send it again",
    ] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
    assert!(!answer.text.contains("p4ssw0rd"), "{}", answer.text);
    assert_eq!(answer.header("set-cookie"), "");
}

#[on_each_database]
async fn body_that_is_no_form_is_not_kept(world: World) {
    let post =
        || world.call(Method::POST, "/console/organizations/new").header("sec-fetch-site", "same-origin");
    for call in [
        post().header("content-type", "application/json").raw("{\"name\":\"x\"}"),
        post().header("content-type", "application/x-www-form-urlencoded").raw("a=".repeat(200_000)),
        post().header("content-type", "application/x-www-form-urlencoded").raw(b"name=%ff".to_vec()),
    ] {
        let answer = call.send().await;
        assert_eq!(answer.status, 401);
        assert!(!answer.text.contains("Send it again"), "{}", answer.text);
    }
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE", "2")])]
async fn too_many_forms_wait_and_keep_what_was_typed(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    for name in ["one", "two"] {
        browser.done(&world, "/console/organizations/new", &[("name", name)]).await;
    }
    let answer = browser.post(&world, "/console/organizations/new", &[("name", "three")]).send().await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.text.contains("Try again in 30 seconds."), "{}", answer.text);
    assert!(answer.text.contains("name=\"name\" value=\"three\""), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), "30");
    // Pages count as reads of the same user.
    assert!(browser.page(&world, "/console/organizations").await.contains(">ada<"));
}
