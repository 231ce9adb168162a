//! An operator, whose forms are sent while the database is away.

use serde_json::json;
use tollkeeper::accounts::store::users::administration::insert_first_account_token;
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::billing::rules::invoicing::Status;
use tollkeeper::billing::store::invoices;
use tollkeeper::clock::{DAY_MS, Day};
use tollkeeper::ids::InvoiceId;
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::money::Nano;
use tollkeeper::operators::roles;
use tollkeeper::trail::Trail;

use support::billed::{self, Usage};
use support::console::Browser;
use support::world::{PASSWORD, TestUser, World};

/// An operator with a second factor, and the data that the forms need.
pub struct Operators {
    pub browser: Browser,
    /// An organization that the operator owns.
    pub organization: String,
    /// The account of `ivan`, which is disabled and enabled.
    pub user_id: String,
    /// Two open invoices of the organization "payer".
    pub invoices: [String; 2],
    /// The token of the link for the first account.
    token: String,
}

impl Operators {
    pub async fn new(world: &World) -> Self {
        let (opal, ivan) = (world.user("opal").await, world.user("ivan").await);
        let own = world.place(&opal, "opals").await;
        for user in [&opal, &ivan] {
            world.add_authenticator_now(&user.access_token).await;
        }
        roles::grant(&world.app.operators, opal.id, &Trail::operator()).await.unwrap();
        let open = open_invoices(world, &opal).await;
        let token = MailToken::generate(&world.app.random);
        let mut tx = world.app.db.write().await.unwrap();
        insert_first_account_token(&mut tx, token.hash(), world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        let browser = world.browser(opal.id).await;
        let (organization, user_id) = (own.organization, ivan.id.to_string());
        Self { browser, organization, user_id, invoices: open, token: token.expose().to_owned() }
    }

    /// Returns the fields of an operator's form; `None` for other forms.
    pub fn fields(&self, route: &str) -> Option<Vec<(&'static str, String)>> {
        let fields: &[(&'static str, &str)] = match route {
            "/first-account" => &[
                ("token", &self.token),
                ("email", "first@example.com"),
                ("username", "first"),
                ("password", PASSWORD),
            ],
            route if asks_owners(route) => &[("is_required", "true")],
            "/installation/organizations/{organization_id}/credit" => {
                &[("amount", "25"), ("reference", "R-1"), ("kind", "purchase"), ("name", "acme")]
            }
            "/installation/organizations/{organization_id}/credit-limit" => {
                &[("amount", "70"), ("name", "acme")]
            }
            "/installation/mail/test" => &[("email", "ops@example.com")],
            "/installation/catalog/reload" | "/installation/mail/retry" => &[],
            route if route.starts_with("/installation/users/") => &[("name", "ivan")],
            route if route.starts_with("/installation/invoices/") => &[("name", "payer")],
            _ => return None,
        };
        Some(fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }

    /// Checks that each invoice was changed according to its form.
    pub async fn check_invoices(&self, world: &World) {
        let mut tx = world.app.db.read().await.unwrap();
        for (id, status) in self.invoices.iter().zip([Status::Paid, Status::Void]) {
            let found = invoices::get(&mut tx, InvoiceId::parse(id).unwrap()).await.unwrap().unwrap();
            assert_eq!((found.status, found.due), (status, Nano::ZERO), "{id}");
        }
    }
}

/// Returns `true` for the forms with which an owner sets requirements for members.
pub fn asks_owners(route: &str) -> bool {
    let settings = route.strip_prefix("/organizations/{organization_id}/settings/");
    matches!(settings, Some("second-factor" | "sign-on"))
}

/// Creates an organization with two closed months of unpaid usage; returns the ids of its invoices.
async fn open_invoices(world: &World, owner: &TestUser) -> [String; 2] {
    const AGE_MS: i64 = 90 * DAY_MS;
    world.clock.advance_ms(-AGE_MS);
    let then = world.session(owner.id).await;
    let place = world.place(&then, "payer").await;
    let (key, _) = world.key(&then, &place, &json!({"name": "old"})).await;
    world.clock.advance_ms(AGE_MS);
    for day in ["2026-01-15", "2026-02-15"] {
        let (day, key) = (Day::parse(day).unwrap(), key.as_str());
        let usage = Usage { place: &place, key, model: "svc-1", day, prompt: 1_000_000, completion: 0 };
        billed::charge(world, usage).await;
    }
    let closed =
        closing::close_due(&world.app.billing, world.clock.now(), &Trail::system(), None).await.unwrap();
    assert!(closed.failed.is_empty(), "{:?}", closed.failed);
    let invoices: Vec<_> = closed.closed.into_iter().filter_map(|month| month.invoice).collect();
    assert!(invoices.iter().all(|invoice| invoice.due.to_string() == "2"), "{invoices:?}");
    let ids: Vec<_> = invoices.iter().map(|invoice| invoice.id.to_string()).collect();
    ids.try_into().unwrap()
}
