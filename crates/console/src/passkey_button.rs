//! The button for a passkey. The script shows it if the browser supports passkeys at this address.

use accounts::passkeys::Options;
use kernel::error::Error;

use crate::console::Console;

/// A button that uses or adds a passkey.
#[derive(Clone, Debug)]
pub struct PasskeyButton {
    /// The options of the browser's call, as JSON.
    pub options: String,
    /// The sealed state, which is sent back with its answer.
    pub ceremony: String,
    /// The origin of the pages that have passkeys.
    pub origin: String,
}

impl PasskeyButton {
    /// Returns the button of a ceremony.
    ///
    /// # Errors
    /// Passkeys can't be used.
    pub fn new(console: &Console, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            options: options.public_key.to_string(),
            ceremony: options.ceremony.clone(),
            origin: console.accounts.passkeys()?.origin().to_owned(),
        })
    }
}
