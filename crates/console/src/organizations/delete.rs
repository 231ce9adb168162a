//! GET and POST /console/organizations/{organization_id}/delete

use api::Api;
use api::gate::Visit;
use askama::Template;
use billing::wallets::Wallet;
use input::record;
use input::types::Text;
use kernel::currencies;
use kernel::error::{Code, Detail, Error};
use kernel::money::Nano;
use kernel::version::Expected;
use tenants::access::OrgScope;
use tenants::organizations::OrganizationDetail;
use web::forms::ObjectForm;
use web::input::NoInput;

use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;
use crate::show::{self, Money};

record! {
    /// The name of the organization, typed to confirm.
    #[derive(Debug)]
    pub struct Confirmation in Api {
        name: Text<400> = required,
    }
}

const LABELS: Labels = &[("name", "Organization name")];

/// The balance that prevents the deletion of an organization.
enum Balance {
    /// No balance.
    Settled,
    /// A positive balance of this amount.
    Credit(Money),
    /// A debt of this amount, or an open invoice.
    Owed(Money),
}

#[derive(Template)]
#[template(path = "organizations/delete.html")]
struct DeletePage {
    shell: Shell,
    form: FormView,
    detail: OrganizationDetail,
    balance: Balance,
}

/// Ask whether to delete an organization.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    if !console.accounts.is_fresh(visit.person.session()).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    show(&console, &visit, FormView::new(LABELS)).await
}

/// Delete an organization.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<Confirmation>,
) -> Result<Page, Error> {
    let detail = tenants::organizations::read(visit.scope.clone());
    let confirmed = form.take().and_then(|Confirmation { name }| check_name(&detail, &name.0));
    let deleted = match confirmed {
        Ok(()) => {
            let expected = Expected::OneOf(vec![detail.version()?]);
            tenants::organizations::delete(&console.tenants, &visit.scope, &expected).await
        }
        Err(error) => Err(error),
    };
    match deleted {
        Ok(()) => Page::done(&console.link("/organizations"), Done::OrganizationDeleted),
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

fn check_name(detail: &OrganizationDetail, typed: &str) -> Result<(), Error> {
    if typed.trim() == detail.organization.name {
        return Ok(());
    }
    let message = "The name doesn't match. Type the organization's name exactly as shown above.".to_owned();
    Err(Error::invalid(vec![Detail { param: "name".to_owned(), code: "other_name", message }]))
}

async fn show(console: &Console, visit: &Visit<OrgScope>, form: FormView) -> Result<Page, Error> {
    let page = DeletePage {
        shell: Shell::read(console, &visit.person).await?,
        detail: tenants::organizations::read(visit.scope.clone()),
        balance: balance(console, &visit.scope).await?,
        form,
    };
    Page::with_form(&page.form, &page)
}

async fn balance(console: &Console, scope: &OrgScope) -> Result<Balance, Error> {
    let summary = billing::summary::read(&console.billing, scope.organization_id()).await?;
    let Wallet { posted, currency, .. } = summary.wallet;
    let amount = Nano::from_units(posted.units().abs());
    let is_payable = amount.units() >= currencies::smallest_payment(&currency).units();
    Ok(match posted.units() {
        1.. if is_payable => Balance::Credit(show::held(amount, &currency)),
        _ if is_payable || summary.is_past_due => Balance::Owed(show::owed(amount, &currency)),
        _ => Balance::Settled,
    })
}
