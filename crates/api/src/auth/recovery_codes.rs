//! POST /v1/auth/recovery-codes

use schemars::JsonSchema;
use serde::Serialize;

use crate::gate::SessionScope;
use accounts::rules::one_time_codes::RecoveryCode;
use accounts::{Accounts, second_factor};
use kernel::error::{Code, Error};
use web::input::NoInput;
use web::reply::{Enveloped, private};
use web::route::Operation;

/// New recovery codes.
#[derive(Serialize, JsonSchema)]
pub struct NewRecoveryCodes {
    /// Ten codes, each of which can be used once instead of the second factor.
    recovery_codes: Vec<String>,
}

pub const CREATE: Operation =
    Operation { errors: &[Code::SecondFactorNotFound], ..Operation::new("create_recovery_codes") };

/// Generate new recovery codes.
///
/// They are shown only once; all earlier codes stop working.
pub async fn create(
    accounts: Accounts,
    scope: SessionScope,
    _: NoInput,
) -> Result<Enveloped<NewRecoveryCodes>, Error> {
    let codes = second_factor::renew_recovery_codes(&accounts, scope.trail(), scope.session(), None).await?;
    Ok(private(NewRecoveryCodes { recovery_codes: codes.iter().map(RecoveryCode::expose).collect() }))
}
