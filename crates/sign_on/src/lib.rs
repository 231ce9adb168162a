//! Sign-on with providers: OpenID Connect, and the OAuth of GitHub.
//!
//! * [`settings`] contains the settings in the providers file, and [`reading`] reads and checks the file.
//! * [`Providers`] contains the configured providers. [`Provider::begin`] creates the link to a provider, and
//!   [`Provider::finish`] reads the [`Identity`] from its response.
//! * [`identity`] is the identity that a provider reports; [`accounts`](../accounts/index.html) decides which
//!   account it belongs to.
//! * [`logout`] reads the tokens with which a provider signs users out.
//!
//! Data from a provider isn't trusted until its signature, its issuer and its audience have been checked.
//! Responses are limited to 256 KiB and five seconds.

mod client;
mod documents;
mod github;
pub mod identity;
pub mod logout;
mod oauth;
mod openid;
mod providers;
pub mod reading;
mod secrets;
pub mod settings;

pub use documents::check;
pub use identity::Identity;
pub use openid::{Callback, read_id_token};
pub use providers::{Begun, Provider, Providers};
pub use secrets::Secrets;
