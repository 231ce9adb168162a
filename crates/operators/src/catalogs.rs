//! Reloads of the catalog.

use kernel::error::Error;
use trail::Trail;

use crate::Operators;

/// Makes every running server reload its own catalog file within a second. The result is in the servers'
/// logs.
///
/// # Errors
/// The database fails.
pub async fn reload(operators: &Operators, trail: &Trail) -> Result<(), Error> {
    catalog::activation::order_reload(&operators.catalogs, trail).await
}
