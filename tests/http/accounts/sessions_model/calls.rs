//! Calls of a sequence other than its steps.

use http::{HeaderMap, Method, Uri};
use tollkeeper::api::gate::{Access, Call, Credential, Session as Gate};
use tollkeeper::clock::HOUR_MS;
use tollkeeper::error::Code;
use tollkeeper::ids::{RequestId, UserId};
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::web::reply::Body;

use tollkeeper::accounts::store::email_tokens::Purpose;

use support::twin::Twin;

pub async fn reads_its_owner(server: &Twin, token: &str) -> bool {
    let answer = server.get("/v1/auth/me").bearer(token).send().await;
    assert!(answer.status == 200 || answer.code() == "invalid_access_token", "{}", answer.text);
    answer.status == 200
}

/// Calls the gate of `refresh-token` without the handler, which would create one more token with each probe.
pub async fn passes_the_gate(server: &Twin, token: &str) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    let mut call = Call {
        method: Method::POST,
        uri: Uri::from_static("/v1/auth/refresh-token"),
        headers,
        path: Vec::new(),
        address: Some([127, 0, 0, 1].into()),
        request_id: RequestId::new(server.app.clock.now(), &server.app.random),
        body: Body::empty(),
        form: None,
        caller: String::new(),
        credential: Credential::default(),
    };
    match Gate::RefreshToken.admit(&server.app.api, &mut call).await {
        Ok(_) => true,
        Err(error) if error.code == Code::InvalidRefreshToken => false,
        Err(error) => panic!("{error}"),
    }
}

/// Creates a token in the same way as the job that sends e-mails.
pub async fn mail_token(server: &Twin, user_id: UserId) -> String {
    let app = &server.app;
    let (token, now) = (MailToken::generate(&app.random), app.clock.now());
    let mut tx = app.db.write().await.unwrap();
    let ends_at = now.plus_ms(HOUR_MS);
    tollkeeper::accounts::store::email_tokens::replace(
        &mut tx,
        user_id,
        Purpose::ResetPassword,
        token.hash(),
        now,
        ends_at,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    token.expose().to_owned()
}
