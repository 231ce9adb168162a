//! Payment forms: a form that is submitted twice, for example after going back in the browser, makes one
//! payment.

use kernel::ids::PaymentId;
use kernel::secrets::sha256;
use tenants::access::OrgScope;

use crate::Payments;

/// Returns the id of a new form.
pub fn new_id(payments: &Payments) -> String {
    PaymentId::new(payments.clock.now(), &payments.random).text()
}

/// Returns the request key of the payment that this user makes in this organization with this form; `None` if
/// the id is invalid. The payment itself gets its own id.
pub fn request_key(scope: &OrgScope, id: &str) -> Option<[u8; 32]> {
    let id = PaymentId::parse(id)?;
    // Can't collide with keys of API requests: those begin with a caller, then a line that begins with a
    // slash.
    Some(sha256(format!("{}\nform of {}\n{id}", scope.user_id(), scope.organization_id()).as_bytes()))
}
