//! GET and POST /console/installation/organizations/{organization_id}/credit

use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use billing::bookkeeping::credits::NewCredit;
use input::record;
use input::types::Text;
use kernel::error::{Detail, Error};
use kernel::money::Nano;
use operators::organizations::{self, Overview};
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{name, one};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::installation::{check_typed, refusal};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// A new credit.
    #[derive(Debug)]
    pub struct AddCredit in Api {
        amount: Text<40> = required,
        reference: Text<400> = required,
        kind: Text<20> = required,
        name: Text<400> = required,
    }
}

const LABELS: Labels =
    &[("amount", "Amount"), ("reference", "Reference"), ("kind", "Kind"), ("name", "Organization name")];

#[derive(Template)]
#[template(path = "installation/organizations/credit.html")]
struct CreditPage {
    shell: Shell,
    form: FormView,
    overview: Overview,
}

/// Show the form that adds a credit.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    show(&console, &visit, FormView::new(LABELS).with("kind", "purchase")).await
}

/// Add a credit. A repeated reference doesn't add it again.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<AddCredit>,
) -> Result<Page, Error> {
    let overview = one(&console, &visit).await?;
    let organization_id = overview.wallet.wallet.organization_id;
    let added = async {
        let AddCredit { amount, reference, kind, name: typed } = form.take()?;
        check_typed(&typed.0, name(&overview.wallet))?;
        let new = NewCredit {
            organization_id,
            amount: amount_of(&amount.0)?,
            reference: reference.0.trim().to_owned(),
            is_grant: kind.0 == "grant",
            expires_at: None,
        };
        organizations::add_credit(&console.operators, &new, visit.scope.trail()).await.map_err(refusal)
    };
    match added.await {
        Ok(added) => {
            let done = if added.existed { Done::CreditThere } else { Done::CreditAdded };
            Page::done(&console.link(&format!("/installation/organizations/{organization_id}")), done)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

/// Reads an amount.
pub fn amount_of(text: &str) -> Result<Nano, Error> {
    Nano::parse(text.trim()).ok_or_else(|| {
        let message = "`amount` must be a decimal such as 25 or 25.00.".to_owned();
        Error::invalid(vec![Detail { param: "amount".to_owned(), code: "invalid_amount", message }])
    })
}

async fn show(console: &Console, visit: &Visit<OperatorScope>, form: FormView) -> Result<Page, Error> {
    let overview = one(console, visit).await?;
    let page = CreditPage { shell: Shell::read(console, &visit.person).await?, form, overview };
    Page::with_form(&page.form, &page)
}
