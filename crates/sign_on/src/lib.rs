//! Sign-on by providers: OpenID Connect, and the OAuth of GitHub.
//!
//! * [`settings`] are what the providers file says, [`reading`] reads and checks it.
//! * [`Providers`] holds the providers in use; [`Provider::begin`] makes the link that leads to one, and
//!   [`Provider::finish`] turns its answer into an [`Identity`].
//! * [`identity`] is what a provider says about a person; who that is here, [`accounts`](../accounts/index.html) decides.
//! * [`logout`] reads the tokens by which a provider ends sessions.
//!
//! Nothing that a provider sends is trusted before its signature, its issuer and its audience are checked, and no
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
pub mod settings;

pub use documents::check;
pub use identity::Identity;
pub use openid::{Callback, read_id_token};
pub use providers::{Begun, Provider, Providers, Secrets};
