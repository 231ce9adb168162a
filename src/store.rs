//! SQL only, one file a table family. Every function takes a transaction (or a read handle) first; the tenant comes from
//! a scope, never from a path.

pub mod addresses_to_fold;
pub mod api_keys;
pub mod audit;
pub mod audit_log;
pub mod audit_state;
pub mod changes;
pub mod credit_notes;
pub mod credits;
pub mod email_tokens;
pub mod invitations;
pub mod invoices;
pub mod job_leases;
pub mod ledger;
pub mod login_guesses;
pub mod login_networks;
pub mod mail_counters;
pub mod members;
pub mod months;
pub mod organization_members;
pub mod organizations;
pub mod outbox;
pub mod prices;
pub mod project_members;
pub mod projects;
pub mod rate_meters;
pub mod reservations;
pub mod service_clock;
pub mod sessions;
pub mod signing_keys;
pub mod sized;
pub mod standings;
pub mod usage;
pub mod users;
pub mod wallets;
pub mod window;

/// One page of a list, as every list of the interface has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Counted from 1.
    pub page: i64,
    /// Entries a page.
    pub page_size: i64,
}

impl Page {
    /// How many entries come before this page.
    pub fn offset(self) -> i64 {
        self.page.saturating_sub(1).saturating_mul(self.page_size)
    }
}

/// A pattern for `LIKE … ESCAPE '\'` that finds this text anywhere. The text is folded like the column it is held
/// against, because the databases disagree about case.
pub fn contains_pattern(folded: &str) -> String {
    let mut pattern = String::with_capacity(folded.len() + 2);
    pattern.push('%');
    for character in folded.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}
