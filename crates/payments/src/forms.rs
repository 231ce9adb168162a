//! Forms for payments: one that is sent twice, as browsers do after Back, makes one payment.

use kernel::ids::PaymentId;
use kernel::secrets::sha256;
use tenants::access::OrgScope;

use crate::Payments;

/// Returns the id of a new form.
pub fn new_id(payments: &Payments) -> String {
    PaymentId::new(payments.clock.now(), &payments.random).text()
}

/// Returns the key of the payment that this person makes in this organization by the form with this id; `None` if no
/// form has such an id. The payment gets an id of its own.
pub fn request_key(scope: &OrgScope, id: &str) -> Option<[u8; 32]> {
    let id = PaymentId::parse(id)?;
    // Keys of API requests begin with a caller and a line that begins with a slash.
    Some(sha256(format!("{}\nform of {}\n{id}", scope.user_id(), scope.organization_id()).as_bytes()))
}
