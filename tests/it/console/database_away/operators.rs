//! An operator, whose forms are sent while the database is away.

use tollkeeper::accounts::store::users::administration::insert_first_account_token;
use tollkeeper::db::sql;
use tollkeeper::kernel::secrets::token::MailToken;
use tollkeeper::operators::roles;
use tollkeeper::trail::Trail;

use crate::support::billed;
use crate::support::console::Browser;
use crate::support::world::{PASSWORD, Place, World};

/// An operator with a second factor, and what the forms need.
pub struct Operators {
    pub browser: Browser,
    /// An organization of the operator's own.
    pub organization: String,
    /// The account that is disabled and enabled, of "ivan".
    pub user_id: String,
    /// Two open invoices.
    pub invoices: [String; 2],
    /// The token of the first account.
    token: String,
}

impl Operators {
    pub async fn new(world: &World, place: &Place) -> Self {
        let (opal, ivan) = (world.user("opal").await, world.user("ivan").await);
        let own = world.place(&opal, "opals").await;
        for user in [&opal, &ivan] {
            world.add_authenticator_now(&user.access_token).await;
        }
        roles::grant(&world.app.operators, opal.id, &Trail::operator()).await.unwrap();
        let invoices = [open_invoice(world, place).await, open_invoice(world, &own).await];
        let token = MailToken::generate(&world.app.random);
        let mut tx = world.app.db.write().await.unwrap();
        insert_first_account_token(&mut tx, token.hash(), world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        let browser = world.browser(opal.id).await;
        let (organization, user_id) = (own.organization, ivan.id.to_string());
        Self { browser, organization, user_id, invoices, token: token.expose().to_owned() }
    }

    /// Fills in a form, if it is an operator's.
    pub fn fields(&self, route: &str) -> Option<Vec<(&'static str, String)>> {
        let fields: &[(&'static str, &str)] = match route {
            "/first-account" => &[
                ("token", &self.token),
                ("email", "first@example.com"),
                ("username", "first"),
                ("password", PASSWORD),
            ],
            "/organizations/{organization_id}/settings/second-factor" => &[("is_required", "true")],
            "/installation/organizations/{organization_id}/credit" => {
                &[("amount", "25"), ("reference", "R-1"), ("kind", "purchase"), ("name", "acme")]
            }
            "/installation/organizations/{organization_id}/credit-limit" => {
                &[("amount", "70"), ("name", "acme")]
            }
            "/installation/mail/test" => &[("email", "ops@example.com")],
            "/installation/catalog/reload" | "/installation/mail/retry" => &[],
            route if route.starts_with("/installation/users/") => &[("name", "ivan")],
            route if route.starts_with("/installation/invoices/") => &[("name", "Somebody")],
            _ => return None,
        };
        Some(fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
    }
}

/// Creates an open invoice of zero.
async fn open_invoice(world: &World, place: &Place) -> String {
    let id = billed::invoice(world, &place.organization).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE invoices SET status = 'open', paid_at = NULL WHERE id = $1")
        .bind(id.as_str())
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}
