//! The button for a passkey. The script shows it if passkeys work on this page.

use accounts::passkeys::Options;
use kernel::error::Error;

use crate::console::Console;

/// A button that uses or adds a passkey.
#[derive(Clone, Debug)]
pub struct PasskeyButton {
    /// The options of the browser's call, as JSON.
    pub options: String,
    /// The sealed state, which is sent back with the browser's response.
    pub ceremony: String,
    /// The origin of the pages on which passkeys work.
    pub origin: String,
}

impl PasskeyButton {
    /// Returns a button with these options.
    ///
    /// # Errors
    /// An error if passkeys can't be used.
    pub fn new(console: &Console, options: &Options) -> Result<Self, Error> {
        Ok(Self {
            options: options.public_key.to_string(),
            ceremony: options.ceremony.clone(),
            origin: console.accounts.passkeys()?.origin().to_owned(),
        })
    }
}
