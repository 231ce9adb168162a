//! The gate, which admits requests: it turns a request into a scope.
//!
//! Every route has an access. It reads the credential and the path, counts the caller's rate, and gets a
//! scope from [`tenants::access`](::tenants::access), or for an API key in the path from [`keys::access`].
//! The order of the checks is fixed: 401, then 404, then 403. The body is read afterwards. [`Browser`] turns
//! an access into one for the console, which reads a cookie instead of the bearer token.

mod bad_credentials;
mod bearer;
mod browser;
mod invoices;
mod model_calls;
mod models;
mod operator;
mod origins;
mod public;
mod service;
mod session_cookie;
mod sessions;
mod tenants;
mod theme;
mod webhooks;

pub use self::webhooks::{OrgDelivery, OrgWebhook};
pub use bearer::{Credential, check_again};
pub use browser::{
    Beginning, Begins, Browser, ConfirmVisit, Confirms, FromProvider, FromProviderVisit, Open, OpenVisit,
    OurPage, SecondStep, SecondStepVisit, SignOn, SignOnVisit, SignedIn, Target, Visit,
};
pub use invoices::{InvoiceScope, OrgInvoice};
pub use keys::access::KeyAction;
pub use model_calls::{ModelCallScope, ModelCalls, TokenCounts};
pub use models::{ModelScope, Models, ModelsScope, OneModel};
pub use operator::{Operator, OperatorScope};
pub use public::{Public, Visitor};
pub use service::{Service, ServiceScope};
pub use session_cookie::SessionCookie;
pub use sessions::{
    OwnConnection, OwnConnectionScope, OwnPasskey, OwnPasskeyScope, OwnSession, OwnSessionScope, Session,
    SessionScope,
};
pub use tenants::{
    Bearer, BudgetScope, Org, OrgBudget, OrgInPerson, OrgInvitation, OrgMember, OrgPayment, PaymentScope,
    Person, Project, ProjectMember,
};
pub use theme::Theme;
pub use web::route::{Access, AccessDoc};

use bearer::live_session;

use accounts::rules::user_agents::UserAgent;
use http::header;
use kernel::error::{Code, Error, RateLimit};
use trail::Trail;

/// A request that is passed to a handler.
pub type Call = web::Call<Credential>;

/// Returns the actor, address and request id for the audit trail.
fn trail(call: &Call) -> Trail {
    let actor = if call.caller.is_empty() { "anonymous".to_owned() } else { call.caller.clone() };
    Trail { actor, address: call.address, request_id: Some(call.request_id) }
}

/// Returns the client's header `User-Agent`.
fn user_agent(call: &Call) -> Option<UserAgent> {
    UserAgent::read(call.headers.get(header::USER_AGENT)?.as_bytes())
}

fn rate_limited(limit: RateLimit) -> Error {
    Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) }
}
