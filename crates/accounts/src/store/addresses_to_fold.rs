//! E-mail addresses that an earlier version folded by different rules.

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{InvitationId, UserId};

/// The row that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An account.
    User(UserId),
    /// An open invitation.
    Invitation(InvitationId),
}

/// An address that must be folded by the current rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressToFold {
    /// The row that the address belongs to.
    pub owner: Owner,
    /// The address, as entered; `None` if its owner was deleted.
    pub email: Option<String>,
}

impl FromRow for AddressToFold {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let kind: String = row.get("kind")?;
        let owner = match kind.as_str() {
            "user" => Owner::User(row.get("id")?),
            "invitation" => Owner::Invitation(row.get("id")?),
            other => return Err(db::Error::Internal(format!("kind is {other:?}"))),
        };
        Ok(Self { owner, email: row.get("email")? })
    }
}

/// Returns the next `limit` addresses, ordered by the kind and the id of their owners.
pub async fn fetch_page(tx: &mut Tx, limit: i64) -> Result<Vec<AddressToFold>, db::Error> {
    sql("SELECT a.id, a.kind, COALESCE(u.email, i.email) AS email FROM addresses_to_fold a
         LEFT JOIN users u ON a.kind = 'user' AND u.id = a.id
         LEFT JOIN invitations i ON a.kind = 'invitation' AND i.id = a.id
         ORDER BY a.kind, a.id LIMIT $1")
    .bind(limit)
    .all(tx)
    .await
}

/// Sets the folded address of an account unless another account has it. Returns `true` if it was set.
pub async fn set_user_address(tx: &mut Tx, id: UserId, email_folded: &str) -> Result<bool, db::Error> {
    let changed = sql("UPDATE users SET email_folded = $2 WHERE id = $1
                       AND NOT EXISTS (SELECT 1 FROM users o WHERE o.email_folded = $2 AND o.id <> $1)")
    .bind(id)
    .bind(email_folded)
    .execute(tx)
    .await?;
    Ok(changed == 1)
}

/// Sets the folded address of an open invitation. If the organization has another open invitation for that
/// address, this invitation ends.
pub async fn set_invitation_address(
    tx: &mut Tx,
    id: InvitationId,
    email_folded: &str,
    now: Time,
) -> Result<(), db::Error> {
    let changed = sql("UPDATE invitations SET email_folded = $2 WHERE id = $1 AND ended_at IS NULL
                       AND NOT EXISTS (SELECT 1 FROM invitations o WHERE o.organization_id = invitations.organization_id
                                       AND o.email_folded = $2 AND o.ended_at IS NULL AND o.id <> $1)")
    .bind(id)
    .bind(email_folded)
    .execute(tx)
    .await?;
    if changed == 0 {
        sql("UPDATE invitations SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL")
            .bind(id)
            .bind(now)
            .defer(tx)
            .await?;
    }
    Ok(())
}

/// Removes an address from the list.
pub async fn remove(tx: &mut Tx, owner: Owner) -> Result<(), db::Error> {
    let id = match owner {
        Owner::User(id) => id.to_string(),
        Owner::Invitation(id) => id.to_string(),
    };
    sql("DELETE FROM addresses_to_fold WHERE id = $1").bind(id).defer(tx).await
}
