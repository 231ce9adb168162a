//! Operators: the users who run an installation. This crate contains the operations with which they read and
//! change the installation's data. The command line and the pages of the console under
//! `/console/installation` call the same functions.
//!
//! * [`users`] finds, creates, disables and enables accounts, ends sessions and removes second factors.
//! * [`roles`] makes users operators, [`first_account`] creates the first operator.
//! * [`overview`] returns the state of the installation, [`trails`] lists its whole audit trail.
//! * [`organizations`] and [`invoices`] read and change balances and invoices, and notify the owners by
//!   e-mail; [`mails`] lists the e-mail queue, and [`margins`] reports the margin between the list price and
//!   the cost of calls.
//!
//! An operator isn't a member of any organization: this crate reads neither the contents of projects nor
//! secrets. Every change adds an entry to the audit trail. Its actor is the user, or `operator` for the
//! command line.

pub mod catalogs;
pub mod first_account;
pub mod invoices;
pub mod mails;
pub mod margins;
mod notices;
pub mod organizations;
pub mod overview;
pub mod roles;
pub mod trails;
pub mod users;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use accounts::Accounts;
use billing::Billing;
use catalog::Catalogs;
use db::{Db, Tx};
use kernel::clock::{Clock, Time};
use kernel::error::Error;
use kernel::ids::OrganizationId;
use kernel::random::Random;
use mail::Mail;
use trail::{Action, Event, Trail};

pub use billing::bookkeeping::OperatorError;

/// The handle of operators; cheap to clone.
#[derive(Clone)]
pub struct Operators(Arc<Parts>);

/// The parts of [`Operators`].
pub struct Parts {
    pub db: Db,
    pub clock: Clock,
    pub random: Random,
    pub accounts: Accounts,
    pub billing: Billing,
    pub catalogs: Catalogs,
    pub mail: Mail,
    /// The public URL, which links begin with, without a slash at the end.
    pub public_url: String,
    /// The path of the file with the token for the first account.
    pub first_account_file: PathBuf,
    /// `true` if the console is enabled. It contains the page that creates the first account.
    pub has_console: bool,
    /// The effective configuration as TOML, with secrets hidden.
    pub settings: String,
}

impl Operators {
    /// Creates a handle with these parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Adds an audit entry about a user, an organization or an e-mail.
    async fn record(
        &self,
        tx: &mut Tx,
        trail: &Trail,
        (action, target): (Action, &str),
        organization_id: Option<OrganizationId>,
        now: Time,
    ) -> Result<(), Error> {
        let event = Event { action, target: target.to_owned(), organization_id };
        Ok(trail::record(tx, trail, &event, now, &self.random).await?)
    }
}

impl Deref for Operators {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
