//! Settings of billing.

use crate::rules::credit_limits;
use kernel::money::Nano;

/// Table `billing`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much a person's first organization may spend before it must pay; 0: strictly prepaid.
    pub credit_limit: Nano,
    /// The same of every further organization of that person.
    pub further_credit_limit: Nano,
    /// The currency of new organizations, an ISO 4217 code.
    pub currency: String,
    /// How long money stays set aside for a call that isn't heard of, in minutes.
    pub reservation_minutes: i64,
    /// Who issues invoices; `None`: it isn't said on them.
    pub issuer_name: Option<String>,
    /// Where they are, on lines of its own.
    pub issuer_address: Option<String>,
}

impl Settings {
    /// The credit limits of new organizations.
    pub const fn credit_limits(&self) -> credit_limits::Limits {
        credit_limits::Limits { first: self.credit_limit, further: self.further_credit_limit }
    }
}

/// Table `audit`.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// How often the server checks the books by itself, in hours; 0: never.
    pub every_hours: u32,
}
