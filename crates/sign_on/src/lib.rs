//! Sign-on with providers: OpenID Connect, and the OAuth of GitHub.
//!
//! * [`settings`] are the contents of the providers file, [`reading`] reads and checks it.
//! * [`Providers`] contains the providers in use; [`Provider::begin`] creates the link to one, and
//!   [`Provider::finish`] turns its response into an [`Identity`].
//! * [`identity`] is a person as a provider describes them; [`accounts`](../accounts/index.html) decides
//!   which account that is.
//! * [`logout`] reads the tokens with which a provider ends sessions.
//!
//! Data from a provider isn't trusted until its signature, its issuer and its audience are checked, and no
//! document is read beyond 256 KiB or five seconds.

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
