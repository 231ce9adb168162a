//! POST /v1/auth/forgot-password

use schemars::JsonSchema;
use serde::Serialize;

use crate::access::Visitor;
use crate::app::App;
use crate::error::Error;
use crate::input::types::Email;
use crate::input::{Body, Fields, Record};
use crate::mail::posting::Draft;
use crate::reply::{Enveloped, private};
use crate::store::mail_counters::Sender;
use crate::store::outbox::Template;

/// Whose password was forgotten.
#[derive(Debug)]
pub struct ForgotPassword {
    email: Email,
}

impl Record for ForgotPassword {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let email = fields.required("email");
        Some(Self { email: email? })
    }
}

/// The same answer for everybody.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Requested {
    message: String,
    email: String,
}

/// Puts a mail into the outbox, whether or not there is such an account: who it is for is looked up when it leaves, so
/// neither the answer nor its time tells.
pub async fn forgot_password(
    app: App,
    scope: Visitor,
    Body(body): Body<ForgotPassword>,
) -> Result<Enveloped<Requested>, Error> {
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let (sender, draft) = (Sender::visitor(scope.trail()), Draft::plain(Template::ResetPassword));
    app.outbox.post(&mut tx, &sender, &draft, &body.email.display, now).await?;
    tx.commit().await?;
    app.outbox.notify_one();
    let message =
        "If there is an account with this address, a mail with a link is on its way to it.".to_owned();
    Ok(private(Requested { message, email: body.email.display }))
}
