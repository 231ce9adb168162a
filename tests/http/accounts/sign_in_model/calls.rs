//! The calls of a sequence.

use http::{HeaderMap, Method, Uri};
use serde_json::Value;
use tollkeeper::accounts::store::email_tokens::{self, Purpose};
use tollkeeper::accounts::store::{connections, sessions};
use tollkeeper::api::gate::{Access, Browser, Call, Credential, Org};
use tollkeeper::clock::HOUR_MS;
use tollkeeper::db::sql;
use tollkeeper::error::Code;
use tollkeeper::ids::{ConnectionId, OrganizationId, RequestId, UserId};
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::tenants::roles::OrganizationAction;
use tollkeeper::web::reply::Body;

use super::model::{Entrance, Kind, Session};
use support::console::COOKIE;
use support::world::World;

/// Returns the gate's decision on a request for the organization with this session.
pub async fn entrance(world: &World, session: &Session, organization: &str) -> Entrance {
    let mut headers = HeaderMap::new();
    let (name, value) = match session.kind {
        Kind::Api => ("authorization", format!("Bearer {}", session.token)),
        Kind::Browser => ("cookie", format!("{COOKIE}={}", session.token)),
    };
    headers.insert(name, value.parse().unwrap());
    let mut call = Call {
        method: Method::GET,
        uri: Uri::from_static("/organization"),
        headers,
        path: vec![("organization_id".to_owned(), organization.to_owned())],
        address: Some([127, 0, 0, 1].into()),
        request_id: RequestId::new(world.clock.now(), &world.app.random),
        body: Body::empty(),
        form: None,
        caller: String::new(),
        credential: Credential::default(),
    };
    let view = Org(OrganizationAction::View);
    let admitted = match session.kind {
        Kind::Api => view.admit(&world.app.api, &mut call).await.map(drop),
        Kind::Browser => Browser(view).admit(&world.app.api, &mut call).await.map(drop),
    };
    match admitted.map_err(|error| error.code) {
        Ok(()) => Entrance::Open,
        Err(Code::InvalidAccessToken) => Entrance::SignedOut,
        Err(Code::SignOnRequired) => Entrance::SignOnRequired,
        Err(Code::SecondFactorEnrolmentRequired) => Entrance::FactorRequired,
        Err(code) => panic!("{code:?}"),
    }
}

/// State of an account at the beginning of a sequence.
pub struct Beginning<'a> {
    pub password_hash: Option<&'a str>,
    pub role: &'static str,
    /// The subject at the issuer, if the account is connected.
    pub connection: Option<(&'a str, &'a str)>,
}

/// Prepares an account, and the requirements of its organization, for the beginning of a sequence.
pub async fn begin(world: &World, user_id: UserId, organization: &str, beginning: &Beginning<'_>) {
    let now = world.clock.now();
    let mut tx = world.app.db.write().await.unwrap();
    sessions::end_live(&mut tx, Some(user_id), now).await.unwrap();
    for table in ["totp", "totp_enrolments", "recovery_codes", "passkeys", "passkey_handles", "connections"] {
        sql(format!("DELETE FROM {table} WHERE user_id = $1")).bind(user_id).execute(&mut tx).await.unwrap();
    }
    let text = "UPDATE users SET password_hash = $2, disabled_at = NULL WHERE id = $1";
    sql(text).bind(user_id).bind(beginning.password_hash).execute(&mut tx).await.unwrap();
    let text = "UPDATE organization_members SET role = $2 WHERE user_id = $1";
    sql(text).bind(user_id).bind(beginning.role).execute(&mut tx).await.unwrap();
    let text = "UPDATE organizations SET require_second_factor = 0, require_sign_on = 0 WHERE id = $1";
    sql(text).bind(organization).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    if let Some((issuer, subject)) = beginning.connection {
        world.connection(user_id, issuer, subject).await;
    }
}

/// Creates the token of an e-mailed link for a new password.
pub async fn mailed_token(world: &World, user_id: UserId) -> String {
    let (token, now) = (MailToken::generate(&world.app.random), world.clock.now());
    let mut tx = world.app.db.write().await.unwrap();
    let ends_at = now.plus_ms(HOUR_MS);
    email_tokens::replace(&mut tx, user_id, Purpose::ResetPassword, token.hash(), now, ends_at)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    token.expose().to_owned()
}

/// Returns the id of the connection to this identity at the provider.
pub async fn connection_id(world: &World, issuer: &str, subject: &str) -> Option<ConnectionId> {
    let mut tx = world.app.db.read().await.unwrap();
    connections::by_subject(&mut tx, issuer, subject).await.unwrap().map(|(id, _)| id)
}

/// Changes a requirement of the organization, as its owner does.
pub async fn require(world: &World, boss: UserId, organization: &str, name: &str, value: bool) {
    let id = OrganizationId::parse(organization).unwrap();
    let token = world.session(boss).await.access_token;
    let body: Value = serde_json::json!({ "settings": { name: value } });
    let path = format!("/v1/organizations/{id}");
    world.call(Method::PUT, &path).bearer(&token).json(&body).data().await;
}
