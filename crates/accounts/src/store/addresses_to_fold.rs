//! E-mail addresses whose folded form is that of an earlier version.

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

/// An address that is to be folded anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The row that it belongs to.
    pub owner: Owner,
    /// The address as given; `None` when its owner is gone.
    pub email: Option<String>,
}

impl FromRow for Waiting {
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

/// At most `most` of them, the owners that were made first at the beginning.
pub async fn first(tx: &mut Tx, most: i64) -> Result<Vec<Waiting>, db::Error> {
    sql("SELECT a.id, a.kind, COALESCE(u.email, i.email) AS email FROM addresses_to_fold a
         LEFT JOIN users u ON a.kind = 'user' AND u.id = a.id
         LEFT JOIN invitations i ON a.kind = 'invitation' AND i.id = a.id
         ORDER BY a.kind, a.id LIMIT $1")
    .bind(most)
    .all(tx)
    .await
}

/// Sets the folded address of an account unless another one has it; whether it was set.
pub async fn set_of_user(tx: &mut Tx, id: UserId, email_folded: &str) -> Result<bool, db::Error> {
    let changed = sql("UPDATE users SET email_folded = $2 WHERE id = $1
                       AND NOT EXISTS (SELECT 1 FROM users o WHERE o.email_folded = $2 AND o.id <> $1)")
    .bind(id)
    .bind(email_folded)
    .execute(tx)
    .await?;
    Ok(changed == 1)
}

/// Sets the folded address of an open invitation. When the organization has another one for it, this one ends.
pub async fn set_of_invitation(
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

/// Takes one off the list.
pub async fn remove(tx: &mut Tx, owner: Owner) -> Result<(), db::Error> {
    let id = match owner {
        Owner::User(id) => id.to_string(),
        Owner::Invitation(id) => id.to_string(),
    };
    sql("DELETE FROM addresses_to_fold WHERE id = $1").bind(id).defer(tx).await
}
