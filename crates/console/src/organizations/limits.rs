//! GET /console/organizations/{organization_id}/limits

use std::sync::Arc;

use api::gate::Visit;
use askama::Template;
use billing::limits::{self, Limits};
use catalog::{Kind, Model, Price};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Pico;
use tenants::access::OrgScope;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

use super::spending::Spending;
use crate::show;

#[derive(Template)]
#[template(path = "organizations/limits.html")]
struct LimitsPage {
    shell: Shell,
    limits: Limits,
    now: Time,
}

impl LimitsPage {
    fn currency(&self) -> &str {
        &self.limits.wallet.currency
    }

    fn spending(&self) -> Spending {
        Spending::from(&self.limits)
    }

    /// Returns the price per million tokens, which is easier to read than the price per token.
    fn price(&self, of_token: &Pico) -> String {
        let of_million = of_token.checked_mul(1_000_000);
        of_million.map_or_else(String::new, |price| kernel::currencies::format(price, self.currency()))
    }

    fn price_now<'a>(&self, model: &'a Arc<Model>) -> Option<&'a Price> {
        model.price_at(self.now)
    }
}

/// Show the limits of an organization's usage and spending.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let limits = limits::read(&console.billing, visit.scope.organization_id()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&LimitsPage { shell, limits, now: console.clock.now() })
}
