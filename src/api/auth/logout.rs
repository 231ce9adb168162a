//! POST /v1/auth/logout

use crate::access::SessionScope;
use crate::app::App;
use crate::error::Error;
use crate::input::Nothing;
use crate::reply::{Enveloped, ok};
use crate::store;

use super::Message;

/// Ends the session: its refresh token and its access tokens stop working.
pub async fn logout(app: App, scope: SessionScope, _: Nothing) -> Result<Enveloped<Message>, Error> {
    let mut tx = app.db.write().await?;
    store::sessions::end(&mut tx, scope.session_id(), app.clock.now()).await?;
    tx.commit().await?;
    Ok(ok(Message { message: "You are logged out.".into() }))
}
