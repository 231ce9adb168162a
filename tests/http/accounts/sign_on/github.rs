//! Sign-on with GitHub, tested with a fake Enterprise Server.

use serde_json::json;

use super::{START, connected, with_provider};
use support::identity_provider::{Jar, Reply};
use support::{Database, on_each_database};

#[on_each_database]
fn the_number_of_the_account_says_who_it_is(database: Database) {
    with_provider(database, "kind = \"github\"\nprovision = \"any\"", async |world, provider, _| {
        provider.set(
            "/login/oauth/access_token",
            Reply::json(&json!({"access_token": "gho_x", "token_type": "bearer"})),
        );
        let mut jar = Jar::default();
        let asked = jar.begin(&world, START).await;
        assert_eq!(
            (asked["code_challenge_method"].as_str(), asked["scope"].as_str()),
            ("S256", "read:user user:email")
        );
        let callback = format!("{START}/callback?code=c0de&state={}", asked["state"]);
        let unverified = json!([{"email": "ada@example.com", "primary": true, "verified": false},
                                {"email": "second@example.com", "primary": false, "verified": true}]);
        provider.set("/api/v3/user", Reply::json(&json!({"id": 583_231, "login": "ada", "name": "Ada"})));
        provider.set("/api/v3/user/emails", Reply::json(&unverified));
        assert_eq!(jar.get(&world, &callback).await.status, 403, "no address is primary and verified");
        let verified = json!([{"email": "ada@example.com", "primary": true, "verified": true}]);
        provider.set("/api/v3/user/emails", Reply::json(&verified));
        let asked = jar.begin(&world, START).await;
        let callback = format!("{START}/callback?code=c0de&state={}", asked["state"]);
        let answer = jar.get(&world, &callback).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert!(connected(&world, &provider.issuer, "583231").await.is_some());
        let data = jar.who(&world).await.unwrap();
        assert_eq!((&data["user"]["username"], &data["user"]["full_name"]), (&json!("ada"), &json!("Ada")));
        assert!(
            provider.requests("/api/v3/user").iter().all(|text| text.contains("authorization: Bearer gho_x"))
        );
    });
}
