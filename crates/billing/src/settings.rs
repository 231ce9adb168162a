//! Settings of billing.

use crate::rules::credit_limits;
use kernel::money::Nano;

/// Table `billing` of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The amount that a user's first organization may spend before it must pay; 0: strictly prepaid.
    pub credit_limit: Nano,
    /// The same for every further organization of that user.
    pub further_credit_limit: Nano,
    /// The currency of new organizations, an ISO 4217 code.
    pub currency: String,
    /// The lifetime of a reservation that isn't extended, in minutes.
    pub reservation_minutes: i64,
    /// The name of the issuer on invoices, if it is to be printed.
    pub issuer_name: Option<String>,
    /// The address of the issuer on invoices, in several lines.
    pub issuer_address: Option<String>,
}

impl Settings {
    /// Returns the credit limits of new organizations.
    pub const fn credit_limits(&self) -> credit_limits::CreditLimits {
        credit_limits::CreditLimits { first: self.credit_limit, further: self.further_credit_limit }
    }
}

/// Table `audit` of the configuration.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// The interval of audits, in hours; 0: never.
    pub every_hours: u32,
}
