//! GET and POST /console/organizations/{organization_id}/billing/card/remove

use api::gate::Visit;
use askama::Template;
use kernel::error::{Code, Error};
use payments::auto_top_ups;
use payments::cards::{self, SavedCard};
use tenants::access::OrgScope;
use web::input::NoInput;

use super::card_link;
use crate::console::Console;
use crate::notices::Done;
use crate::organizations::billing::payments_link;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "organizations/payments/card_remove.html")]
struct RemovePage {
    shell: Shell,
    card: SavedCard,
    /// `true` if the automatic top-up is on. It stops without a card.
    tops_up: bool,
}

/// Ask whether to remove the saved card. Without a saved card or payments, redirect to the page of the card.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    let card = cards::read(&console.payments, organization_id).await?;
    let Some(card) = card.filter(|_| console.payments.is_on()) else {
        return Page::see_other(&card_link(&console, organization_id));
    };
    let tops_up = auto_top_ups::read(&console.payments, organization_id).await?.is_enabled;
    Page::new(&RemovePage { shell: Shell::read(&console, &visit.person).await?, card, tops_up })
}

/// Remove the saved card.
pub async fn create(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    match cards::remove(&console.payments, &visit.scope).await {
        Ok(()) => Page::done(&card_link(&console, organization_id), Done::CardRemoved),
        // The form was already sent.
        Err(error) if error.code == Code::NoPaymentMethod => {
            Page::done(&card_link(&console, organization_id), Done::CardRemoved)
        }
        Err(error) if error.code == Code::PaymentsDisabled => {
            Page::see_other(&payments_link(&console, organization_id))
        }
        Err(error) => Err(error),
    }
}
