//! Adding, listing, renaming and removing passkeys.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::passkeys::MAX_PASSKEYS;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::{
    EXPIRED, INVALID, add, add_with, at, create, entries, list, logged_in, mails, options, origin, post, text,
};
use support::on_each_database;
use support::security_key::{BE, BS, SecurityKey, decode, encode};
use support::world::{START, World};

#[on_each_database]
async fn options_are_of_this_server_and_person(world: World) {
    let ada = world.user("ada").await;
    let first = options(&world, &ada.access_token).await;
    let public_key = &first["public_key"];
    assert_eq!(public_key["rp"], json!({"id": "localhost", "name": "tollkeeper"}));
    let user = &public_key["user"];
    assert_eq!((&user["name"], &user["displayName"]), (&json!(super::ADA), &json!("ada")));
    assert_eq!(decode(&user["id"]).len(), 32);
    assert_eq!(decode(&public_key["challenge"]).len(), 32);
    assert_eq!(public_key["excludeCredentials"], json!([]));
    // Nothing is stored yet: the next options may have another handle.
    assert_eq!(list(&world, &ada.access_token).await, json!([]));

    let (key, _) = add(&world, &ada.access_token, "Laptop").await;
    let second = options(&world, &ada.access_token).await;
    let id = encode(&key.credential_id);
    assert_eq!(second["public_key"]["excludeCredentials"], json!([{"type": "public-key", "id": id}]));
    assert_eq!(decode(&second["public_key"]["user"]["id"]), key.handle, "a user has a single handle");
    assert_ne!(second["public_key"]["challenge"], public_key["challenge"]);
    let bob = world.user("bob").await;
    let of_bob = options(&world, &bob.access_token).await;
    assert_eq!(of_bob["public_key"]["excludeCredentials"], json!([]));
    assert_ne!(decode(&of_bob["public_key"]["user"]["id"]), key.handle);
}

#[on_each_database]
async fn passkey_is_added_renamed_and_removed(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let mut key = SecurityKey::new();
    key.flags |= BE | BS;
    let added = add_with(&world, token, "Laptop", &mut key).await;
    let passkey = &added["passkey"];
    let id = text(passkey, "id");
    assert!(id.starts_with("passkey_"), "{id}");
    let mut expected =
        json!({"id": id, "name": "Laptop", "created_at": START, "last_used_at": null, "synced": true});
    assert_eq!(*passkey, expected);
    assert_eq!(list(&world, token).await, json!([expected]));
    let [mail] = mails(&world, "A passkey was added to your account").await.try_into().unwrap();
    assert!(mail.contains("Laptop") && mail.contains("127.0.0.1"), "{mail}");

    world.clock.advance_ms(MINUTE_MS);
    // The authenticator may report that the passkey is no longer backed up.
    key.flags &= !BS;
    logged_in(&world, &mut key).await;
    expected["last_used_at"] = "2026-03-10T12:01:00.000Z".into();
    expected["synced"] = false.into();
    assert_eq!(list(&world, token).await, json!([expected]));

    let renamed = at(&world, token, Method::PUT, &id).json(&json!({"name": "Phone"})).data().await;
    expected["name"] = "Phone".into();
    assert_eq!(renamed["passkey"], expected);
    let unchanged = at(&world, token, Method::PUT, &id).json(&json!({})).data().await;
    assert_eq!(unchanged["passkey"], expected);
    for name in [json!(""), json!(null), json!("x".repeat(101))] {
        let refused = at(&world, token, Method::PUT, &id).json(&json!({"name": name})).refused().await;
        assert_eq!(refused, (400, "invalid_request".into()), "{name}");
    }

    let removed = at(&world, token, Method::DELETE, &id).data().await;
    assert!(text(&removed, "message").contains("password alone"), "{removed}");
    assert_eq!(list(&world, token).await, json!([]));
    let [mail] = mails(&world, "A passkey was removed from your account").await.try_into().unwrap();
    assert!(mail.contains("Phone") && mail.contains("sign in with only your password"), "{mail}");
    let person = ada.id.to_string();
    for action in ["passkey.added", "passkey.changed", "passkey.removed"] {
        assert_eq!(entries(&world, action).await, [[person.clone(), id.clone()]], "{action}");
    }
    let options = super::login_options(&world).await;
    let credential = key.sign(&options["public_key"], &origin(&world));
    let refused = super::login(&world, &options, &credential).refused().await;
    assert_eq!((refused.0, refused.1.as_str()), INVALID, "it is gone");
}

#[on_each_database]
async fn passkeys_are_of_their_own_person(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (_, added) = add(&world, &ada.access_token, "Laptop").await;
    let id = text(&added["passkey"], "id");
    assert_eq!(list(&world, &bob.access_token).await, json!([]));
    for (method, id) in [
        (Method::PUT, id.as_str()),
        (Method::DELETE, &id),
        (Method::PUT, "passkey_01kfz3v9xee8tb2m6h0q5w7r4n"),
        (Method::DELETE, "nothing"),
    ] {
        let call = at(&world, &bob.access_token, method.clone(), id);
        let call = if method == Method::PUT { call.json(&json!({"name": "Mine"})) } else { call };
        assert_eq!(call.refused().await, (404, "passkey_not_found".into()), "{method} {id}");
    }
    assert_eq!(list(&world, &ada.access_token).await[0]["name"], "Laptop");
}

#[on_each_database]
async fn credential_has_one_person(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    // An authenticator that ignores `excludeCredentials`, and one that copies the id of another passkey.
    for token in [&ada.access_token, &bob.access_token] {
        let options = options(&world, token).await;
        let mut copy = SecurityKey::new();
        copy.credential_id.clone_from(&key.credential_id);
        for credential in [copy.make(&options["public_key"], &origin(&world))] {
            let refused = create(&world, token, &options, &credential, "Copy").refused().await;
            assert_eq!((refused.0, refused.1.as_str()), INVALID);
        }
    }
    assert_eq!(list(&world, &bob.access_token).await, json!([]));
    let user = logged_in(&world, &mut key).await["user"]["id"].clone();
    assert_eq!(user, ada.id.to_string());
}

#[on_each_database]
async fn two_first_ceremonies_agree_on_one_handle(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let (one, two) = (options(&world, token).await, options(&world, token).await);
    let (mut first, mut second) = (SecurityKey::new(), SecurityKey::new());
    let made =
        [first.make(&one["public_key"], &origin(&world)), second.make(&two["public_key"], &origin(&world))];
    create(&world, token, &one, &made[0], "First").data().await;
    let refused = create(&world, token, &two, &made[1], "Second").refused().await;
    assert_eq!((refused.0, refused.1.as_str()), EXPIRED);
    logged_in(&world, &mut first).await;
}

#[on_each_database]
async fn person_has_at_most_twenty(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    for number in 1..MAX_PASSKEYS {
        add(&world, token, &format!("Key {number}")).await;
    }
    let spare = options(&world, token).await;
    add(&world, token, "The last").await;
    let refused = post(&world, token, "/v1/auth/passkeys/options", &json!({})).refused().await;
    assert_eq!(refused, (409, "limit_reached".into()));
    let credential = SecurityKey::new().make(&spare["public_key"], &origin(&world));
    let refused = create(&world, token, &spare, &credential, "One more").refused().await;
    assert_eq!(refused, (409, "limit_reached".into()));
    assert_eq!(list(&world, token).await.as_array().map(Vec::len), Some(20));
}

#[on_each_database]
async fn nothing_secret_is_stored(world: World) {
    let ada = world.user("ada").await;
    let (key, _) = add(&world, &ada.access_token, "Laptop").await;
    let mut tx = world.app.db.read().await.unwrap();
    let (stored,): (String,) = sql("SELECT credential FROM passkeys").one(&mut tx).await.unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["cred_id"], encode(&key.credential_id));
    assert_eq!(stored["cred"]["type_"], "ES256");
    assert_eq!(stored["counter"], 0);
    assert_eq!(stored["attestation_format"], "none");
}

#[on_each_database]
async fn changes_need_a_recent_proof(world: World) {
    let ada = world.user("ada").await;
    let (mut key, added) = add(&world, &ada.access_token, "Laptop").await;
    let id = text(&added["passkey"], "id");
    let token = text(&logged_in(&world, &mut key).await, "access_token");
    let waiting = options(&world, &token).await;
    world.clock.advance_ms(15 * MINUTE_MS);
    let stale = (403, "reauthentication_required".to_owned());
    let credential = SecurityKey::new().make(&waiting["public_key"], &origin(&world));
    for call in [
        post(&world, &token, "/v1/auth/passkeys/options", &json!({})),
        create(&world, &token, &waiting, &credential, "x"),
        at(&world, &token, Method::DELETE, &id),
    ] {
        assert_eq!(call.refused().await, stale);
    }
    // Renaming needs no recent proof of identity.
    at(&world, &token, Method::PUT, &id).json(&json!({"name": "Phone"})).data().await;
    assert_eq!(list(&world, &token).await[0]["name"], "Phone");
}

#[on_each_database(&[("TOLLKEEPER_SIGN_IN__PASSKEYS", "false")])]
async fn switch_keeps_everybody_from_using_them_and_opens_no_account(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let off = (403, "passkeys_disabled".to_owned());
    let nothing = json!({"ceremony": "x", "credential": {}, "name": "x"});
    let login = json!({"ceremony": "x", "credential": {}});
    for (path, body) in [
        ("/v1/auth/passkeys/options", &json!({})),
        ("/v1/auth/passkeys", &nothing),
        ("/v1/auth/passkey-login/options", &json!({})),
        ("/v1/auth/passkey-login", &login),
        ("/v1/auth/reauthenticate/options", &json!({})),
        ("/v1/auth/reauthenticate", &login),
    ] {
        assert_eq!(post(&world, token, path, body).refused().await, off, "{path}");
    }
    // A passkey that was added before passkeys were disabled.
    let mut tx = world.app.db.write().await.unwrap();
    for statement in [
        "INSERT INTO passkey_handles (user_id, handle, asked_after_password) VALUES ($1, $2, 1)",
        "INSERT INTO passkeys (id, user_id, credential_id, credential, name, sign_count, is_synced, created_at)
             VALUES ('passkey_01kfz3v9xee8tb2m6h0q5w7r4n', $1, $2, '{}', 'Old', 0, 0, 0)",
    ] {
        sql(statement).bind(ada.id).bind([7_u8; 32]).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let password = json!({"email": super::ADA, "password": support::world::PASSWORD});
    let refused = world.post("/v1/auth/login", &password).refused().await;
    assert_eq!(refused, (401, "second_factor_required".into()));
    at(&world, token, Method::DELETE, "passkey_01kfz3v9xee8tb2m6h0q5w7r4n").data().await;
    world.post("/v1/auth/login", &password).data().await;
}

#[on_each_database(&[("TOLLKEEPER_PUBLIC_URL", "https://192.0.2.1")])]
async fn server_with_an_address_has_none(world: World) {
    let ada = world.user("ada").await;
    let off = (403, "passkeys_disabled".to_owned());
    assert_eq!(post(&world, &ada.access_token, "/v1/auth/passkeys/options", &json!({})).refused().await, off);
    // Headers make no difference.
    let call = world.post("/v1/auth/passkey-login/options", &json!({}));
    assert_eq!(call.header("host", "keeper.example.com").refused().await, off);
}

#[on_each_database(&[("TOLLKEEPER_PUBLIC_URL", "https://keeper.example.com/path")])]
async fn relying_party_comes_from_the_configuration(world: World) {
    let call = world.post("/v1/auth/passkey-login/options", &json!({}));
    let answer = call.header("host", "evil.example").header("x-forwarded-host", "evil.example").data().await;
    assert_eq!(answer["public_key"]["rpId"], "keeper.example.com");
    assert_eq!(origin(&world), "https://keeper.example.com");
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    logged_in(&world, &mut key).await;
}
