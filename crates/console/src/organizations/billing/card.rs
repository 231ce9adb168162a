//! GET and POST /console/organizations/{organization_id}/billing/card

pub mod remove;

use api::gate::Visit;
use askama::Template;
use kernel::error::{Code, Error};
use kernel::ids::OrganizationId;
use payments::cards::{self, SavedCard};
use tenants::access::OrgScope;
use web::input::NoInput;

use super::{Tab, payments_link};
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/payments/card.html")]
struct CardPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    card: Option<SavedCard>,
    /// The URL of Stripe's page on which the card is entered, if a page is open and the user may save a card.
    checkout_url: Option<String>,
    is_on: bool,
    may_pay: bool,
}

/// Show the saved card of an organization.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    let shell = Shell::read(&console, &visit.person).await?;
    let may_pay = super::may_pay(&console, &shell);
    let open = cards::open_page(&console.payments, organization_id).await?;
    Page::new(&CardPage {
        tabs: super::tabs(&shell, Tab::Payments),
        card: cards::read(&console.payments, organization_id).await?,
        checkout_url: open.filter(|_| may_pay),
        is_on: console.payments.is_on(),
        may_pay,
        shell,
    })
}

/// Create Stripe's page on which a card is saved, and redirect to the page with the link to it.
///
/// If a Stripe page is already open, it is used again.
pub async fn create(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    match cards::begin(&console.payments, &visit.scope).await {
        Ok(_) => Page::done(&card_link(&console, organization_id), Done::CardPageReady),
        Err(error) if error.code == Code::PaymentsDisabled => {
            Page::see_other(&payments_link(&console, organization_id))
        }
        Err(error) => Err(error),
    }
}

/// Returns the link to the card of an organization.
fn card_link(console: &Console, organization_id: OrganizationId) -> String {
    console.link(&format!("/organizations/{organization_id}/billing/card"))
}

/// Returns a card in words, for example `Visa ending in 4242`.
pub fn name(card: &SavedCard) -> String {
    let brand = match card.brand.as_str() {
        "amex" => "American Express".to_owned(),
        "diners" => "Diners Club".to_owned(),
        "jcb" => "JCB".to_owned(),
        "unionpay" => "UnionPay".to_owned(),
        brand => {
            let mut letters = brand.chars();
            let first = letters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    };
    format!("{brand} ending in {}", card.last4)
}

/// Returns the last month of a card, for example `02/2031`.
pub fn last_month(card: &SavedCard) -> String {
    format!("{:02}/{}", card.exp_month, card.exp_year)
}
