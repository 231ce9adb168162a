//! GET and POST /console/installation/organizations/{organization_id}/credit-limit

use api::Api;
use api::gate::{OperatorScope, Visit};
use askama::Template;
use input::record;
use input::types::Text;
use kernel::error::Error;
use operators::organizations::{self, Overview};
use web::forms::ObjectForm;
use web::input::NoInput;

use super::credit::amount_of;
use super::{name, one};
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::installation::{check_typed, refusal};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

record! {
    /// A credit limit.
    #[derive(Debug)]
    pub struct SetCreditLimit in Api {
        amount: Text<40> = required,
        name: Text<400> = required,
    }
}

const LABELS: Labels = &[("amount", "Credit limit"), ("name", "Organization name")];

#[derive(Template)]
#[template(path = "installation/organizations/credit_limit.html")]
struct CreditLimitPage {
    shell: Shell,
    form: FormView,
    overview: Overview,
}

/// Show the form that sets the credit limit.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let limit = one(&console, &visit).await?.wallet.credit_limit;
    show(&console, &visit, FormView::new(LABELS).with("amount", limit.to_string())).await
}

/// Set the amount by which an organization's balance may go below zero.
pub async fn create(
    console: Console,
    visit: Visit<OperatorScope>,
    mut form: ObjectForm<SetCreditLimit>,
) -> Result<Page, Error> {
    let overview = one(&console, &visit).await?;
    let id = overview.wallet.wallet.organization_id;
    let set = async {
        let SetCreditLimit { amount, name: typed } = form.take()?;
        check_typed(&typed.0, name(&overview.wallet))?;
        let amount = amount_of(&amount.0)?;
        let trail = visit.scope.trail();
        organizations::set_credit_limit(&console.operators, id, amount, trail).await.map_err(refusal)
    };
    match set.await {
        Ok(_) => {
            Page::done(&console.link(&format!("/installation/organizations/{id}")), Done::CreditLimitSet)
        }
        Err(error) => show(&console, &visit, FormView::refused(LABELS, &form, error)?).await,
    }
}

async fn show(console: &Console, visit: &Visit<OperatorScope>, form: FormView) -> Result<Page, Error> {
    let overview = one(console, visit).await?;
    let page = CreditLimitPage { shell: Shell::read(console, &visit.person).await?, form, overview };
    Page::with_form(&page.form, &page)
}
