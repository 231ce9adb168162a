//! The catalog.

use kernel::error::Error;
use trail::Trail;

use crate::Operators;

/// Has every running server read its own catalog file again, within a second; their logs show the result.
///
/// # Errors
/// The database fails.
pub async fn reload(operators: &Operators, trail: &Trail) -> Result<(), Error> {
    catalog::activation::order_reload(&operators.catalogs, trail).await
}
