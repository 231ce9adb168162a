//! `/console/organizations/{organization_id}/billing/payments` and `…/{payment_id}`

mod meanings;
pub mod new;

use api::gate::{PaymentScope, Visit};
use api::paging::PageQuery;
use askama::Template;
use kernel::error::Error;
use kernel::money::Nano;
use payments::auto_top_ups::{self, AutoTopUp};
use payments::cards::{self, SavedCard};
use payments::payments::{self as operations, Payment};
use tenants::access::OrgScope;
use tenants::roles::OrganizationAction;
use web::forms::Filters;
use web::input::NoInput;

use super::{Tab, auto_top_up, card, currency, payments_link};
use crate::console::Console;
use crate::listing::Listing;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Money, SharedColumn};

#[derive(Template)]
#[template(path = "organizations/payments/list.html")]
struct ListPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    payments: Vec<Payment>,
    /// The formats of the amounts.
    amounts: SharedColumn,
    refunds: SharedColumn,
    disputes: SharedColumn,
    listing: Listing,
    card: Option<SavedCard>,
    top_up: AutoTopUp,
    /// The currency's ISO 4217 code.
    currency: String,
    is_on: bool,
    may_pay: bool,
}

/// List an organization's payments, with the saved card and the automatic top-up.
pub async fn list(
    console: Console,
    visit: Visit<OrgScope>,
    query: Filters<PageQuery>,
) -> Result<Page, Error> {
    let (organization_id, page) = (visit.scope.organization_id(), query.fields.0);
    let listed = operations::list(&console.payments, &visit.scope, page).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let column = |amount: fn(&Payment) -> Nano| {
        SharedColumn::held(listed.rows.iter().map(|payment| (amount(payment), payment.currency.as_str())))
    };
    Page::new(&ListPage {
        tabs: super::tabs(&shell, Tab::Payments),
        amounts: column(Payment::amount),
        refunds: column(Payment::refunded),
        disputes: column(Payment::disputed),
        payments: listed.rows,
        listing: Listing::new(page, listed.total, &query.sent),
        card: cards::read(&console.payments, organization_id).await?,
        top_up: auto_top_ups::read(&console.payments, organization_id).await?,
        currency: currency(&console, organization_id).await?,
        is_on: console.payments.is_on(),
        may_pay: super::may_pay(&console, &shell),
        shell,
    })
}

/// Returns the link to a payment.
pub fn payment_link(console: &Console, payment: &Payment) -> String {
    format!("{}/{}", payments_link(console, payment.organization_id), payment.id)
}

#[derive(Template)]
#[template(path = "organizations/payments/payment.html")]
struct PaymentPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    payment: Payment,
    /// The tax that is added, and the total with it, once they are known.
    tax: Option<Money>,
    total: Option<Money>,
    /// The URL of Stripe's page for the payment, if the user may pay.
    checkout_url: Option<String>,
    may_pay: bool,
    is_on: bool,
}

/// Show a payment. Owners also see the link to Stripe's page for it.
pub async fn read(console: Console, visit: Visit<PaymentScope>, _: NoInput) -> Result<Page, Error> {
    let payment = visit.scope.into_payment();
    let shell = Shell::read(&console, &visit.person).await?;
    let may_pay = shell.may(OrganizationAction::ManageBilling);
    // A payment that is made while payments are off isn't credited, so the link isn't shown.
    let is_payable = may_pay && console.payments.is_on() && payment.status.waits_for_customer();
    let money = |amount| show::money(amount, &payment.currency);
    Page::new(&PaymentPage {
        tabs: super::tabs(&shell, Tab::Payments),
        tax: payment.tax().filter(|_| payment.is_taxed).map(money),
        total: payment.total().filter(|_| payment.is_taxed).map(money),
        checkout_url: payment.checkout_url.clone().filter(|_| is_payable),
        may_pay,
        is_on: console.payments.is_on(),
        payment,
        shell,
    })
}
