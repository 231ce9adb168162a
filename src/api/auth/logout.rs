//! POST /v1/auth/logout

use crate::access::SessionScope;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::{Enveloped, ok};
use crate::store;
use crate::store::audit_log::{Action, Event};

use super::Message;

/// Ends the session: its refresh token and its access tokens stop working.
pub async fn logout(app: App, scope: SessionScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let mut tx = app.db.write().await?;
    let now = app.clock.now();
    store::sessions::end(&mut tx, scope.session_id(), now).await?;
    let target = scope.session_id().to_string();
    let event = Event { action: Action::SessionEnded, target, organization_id: None };
    store::audit_log::record(&mut tx, scope.trail(), &event, now, &app.random).await?;
    tx.commit().await?;
    Ok(ok(Message { message: "You are logged out.".into() }))
}
