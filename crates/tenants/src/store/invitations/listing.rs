//! Lists of an organization's invitations.

use std::sync::LazyLock;

use super::{IS_FOUND, STATUS};
use crate::roles::OrganizationRole;
use crate::rules::invitations::InvitationStatus;
use db::{Page, Statement, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{InvitationId, OrganizationId, UserId};

/// An invitation in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invitation {
    pub id: InvitationId,
    /// The guest's address, as entered.
    pub email: String,
    pub role: OrganizationRole,
    pub status: InvitationStatus,
    pub created_at: Time,
    pub expires_at: Time,
    /// The user who sent it.
    pub invited_by: UserId,
    /// The e-mail address of the user in `invited_by`.
    pub invited_by_email: String,
    pub invited_by_username: String,
}

db::row!(Invitation {
    id,
    email,
    role,
    status,
    created_at,
    expires_at,
    invited_by,
    invited_by_email,
    invited_by_username
});

/// The filter of a list of invitations.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    pub organization_id: OrganizationId,
    /// The status that an invitation must have; `None` for all.
    pub status: Option<InvitationStatus>,
    /// The current time, which determines the status.
    pub now: Time,
}

impl Filter {
    fn bind(&self, text: &'static str) -> Statement {
        let status = self.status.map_or("", InvitationStatus::as_str);
        sql(text).bind(self.organization_id).bind(self.now).bind(status)
    }
}

/// The statement of a page of [`list`]. `CROSS JOIN` makes SQLite join the tables in this order.
pub static LIST: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT i.id, i.email, i.role, {STATUS} AS status, i.created_at, i.expires_at, i.invited_by,
                u.email AS invited_by_email, u.username AS invited_by_username
         FROM invitations i /*+ INDEXED BY invitations_list */ CROSS JOIN users u
         WHERE i.organization_id = $1 AND u.id = i.invited_by AND {IS_FOUND} AND ($3 = '' OR {STATUS} = $3)
         ORDER BY i.created_at DESC, i.id LIMIT $4 OFFSET $5"
    )
});

/// The statement that counts the rows of [`list`].
pub static COUNT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT COUNT(*) FROM invitations i /*+ INDEXED BY invitations_list */
         WHERE i.organization_id = $1 AND {IS_FOUND} AND ($3 = '' OR {STATUS} = $3)"
    )
});

/// Returns the number of matching invitations, and one page of them, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<Invitation>), db::Error> {
    let (total,): (i64,) = filter.bind(&COUNT).heavy().one(tx).await?;
    let rows = filter.bind(&LIST).bind(page.page_size).bind(page.offset()).heavy().all(tx).await?;
    Ok((total, rows))
}
