//! The role of operator. Only the command line and the page of the first account grant it.

use accounts::store::sessions;
use accounts::store::users::administration;
use db::Tx;
use kernel::error::Error;
use kernel::ids::UserId;
use trail::{Action, Trail};

use crate::Operators;
use crate::users::{UserChange, after, finish, lock};

/// Makes a user an operator. Their sessions end, because operators' sessions are shorter.
///
/// # Errors
/// `user_not_found`.
pub async fn grant(operators: &Operators, user_id: UserId, trail: &Trail) -> Result<UserChange, Error> {
    set(operators, user_id, true, trail).await
}

/// Revokes a user's role of operator.
///
/// # Errors
/// `user_not_found`.
pub async fn revoke(operators: &Operators, user_id: UserId, trail: &Trail) -> Result<UserChange, Error> {
    set(operators, user_id, false, trail).await
}

async fn set(
    operators: &Operators,
    user_id: UserId,
    is_granted: bool,
    trail: &Trail,
) -> Result<UserChange, Error> {
    let now = operators.clock.now();
    let mut tx = lock(operators, user_id).await?;
    let is_changed = administration::set_operator(&mut tx, user_id, is_granted.then_some(now), now).await?;
    let user = after(&mut tx, user_id).await?;
    let mut ended_sessions = 0;
    if is_changed {
        ended_sessions = sessions::end_live(&mut tx, Some(user_id), now).await?;
        let action = if is_granted { Action::OperatorGranted } else { Action::OperatorRevoked };
        operators.record(&mut tx, trail, (action, &user_id.to_string()), None, now).await?;
        if is_granted {
            administration::remove_first_account_token(&mut tx).await?;
        }
    }
    finish(operators, tx, UserChange { user, was_unchanged: !is_changed, ended_sessions }).await
}

/// Returns `true` if the user is an operator and their account isn't disabled.
///
/// # Errors
/// The database fails.
pub async fn is_operator(operators: &Operators, user_id: UserId) -> Result<bool, Error> {
    let mut tx: Tx = operators.db.read().await?;
    Ok(administration::is_operator(&mut tx, user_id).await?)
}

/// Checks that the user has a second factor, which every operator needs.
///
/// # Errors
/// `second_factor_enrolment_required`.
pub async fn require_second_factor(operators: &Operators, user_id: UserId) -> Result<(), Error> {
    accounts::second_factor::require(&mut operators.db.read().await?, user_id).await
}
