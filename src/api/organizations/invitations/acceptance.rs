//! Open invitations, taken up with the proof of an address.

use crate::app::App;
use crate::clock::Time;
use crate::db::Tx;
use crate::error::Error;
use crate::store::audit_log::Trail;
use crate::store::users::User;
use crate::tenants;

/// See [`tenants::invitations::accept_all`].
pub(crate) async fn accept_all(
    app: &App,
    tx: &mut Tx,
    trail: &Trail,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    tenants::invitations::accept_all(&app.tenants, tx, trail, (user.id, &user.email_folded), now).await
}
