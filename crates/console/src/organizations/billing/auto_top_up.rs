//! GET and POST /console/organizations/{organization_id}/billing/auto-top-up

use api::gate::Visit;
use api::organizations::billing::auto_top_up::UpdateAutoTopUp;
use askama::Template;
use kernel::error::{Code, Error};
use kernel::money::Nano;
use kernel::version::Expected;
use payments::auto_top_ups::{self, AutoTopUp, Change, PausedReason};
use payments::cards::{self, SavedCard};
use tenants::access::OrgScope;
use web::forms::ObjectForm;
use web::input::NoInput;

use super::{Tab, card, currency, payments_link};
use crate::conflicts;
use crate::console::Console;
use crate::form_view::{FormView, Labels};
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

const LABELS: Labels = &[
    ("enabled", "Top up automatically"),
    ("threshold", "Threshold"),
    ("restore_to", "New balance"),
    ("monthly_cap", "Monthly maximum"),
];

/// The name of the hidden field of the form that resumes a paused top-up.
const RESUME: &str = "resume";

const CAP: &str = "Per calendar month (UTC). Leave blank for no limit.";
const TAXED_CAP: &str = "Including tax, per calendar month (UTC). Leave blank for no limit.";

#[derive(Template)]
#[template(path = "organizations/payments/auto_top_up.html")]
struct TopUpPage {
    shell: Shell,
    tabs: Vec<(String, &'static str, bool)>,
    form: FormView,
    /// The current version, for the form that turns the top-up on again.
    current: FormView,
    top_up: AutoTopUp,
    /// The reason for the pause, if the top-up is paused.
    paused: Option<&'static str>,
    card: Option<SavedCard>,
    /// The hint about the minimum difference between the new balance and the threshold.
    gap: String,
    /// The hint about the monthly maximum.
    cap_hint: &'static str,
    /// The currency's ISO 4217 code.
    currency: String,
    is_on: bool,
    /// `true` if tax is added to the charge.
    is_taxed: bool,
    may_pay: bool,
}

/// Show the automatic top-up of an organization. Users who manage its money also see the form that changes
/// it.
pub async fn read(console: Console, visit: Visit<OrgScope>, _: NoInput) -> Result<Page, Error> {
    let top_up = auto_top_ups::read(&console.payments, visit.scope.organization_id()).await?;
    show(&console, &visit, filled(&top_up)?, top_up).await
}

/// Set the automatic top-up, or resume a paused one.
pub async fn create(
    console: Console,
    visit: Visit<OrgScope>,
    mut form: ObjectForm<UpdateAutoTopUp>,
) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    if !console.payments.is_on() {
        return Page::see_other(&payments_link(&console, organization_id));
    }
    let link = console.link(&format!("/organizations/{organization_id}/billing/auto-top-up"));
    let top_up = auto_top_ups::read(&console.payments, organization_id).await?;
    if let Some(page) = conflicts::check(&console, &visit.person, &form, &filled(&top_up)?, &link).await? {
        return Ok(page);
    }
    let expected = Expected::OneOf(vec![top_up.version()?]);
    let set = async {
        let change = Change::from(form.take()?);
        // Changing an amount doesn't resume a paused top-up.
        let resumes = form.sent(RESUME) == "true";
        let is_enabled = change.is_enabled.filter(|is_on| *is_on != top_up.is_enabled || resumes);
        auto_top_ups::update(&console.payments, &visit.scope, &expected, Change { is_enabled, ..change })
            .await
    };
    match set.await {
        Ok(_) => Page::done(&link, Done::AutoTopUpSet),
        Err(error) => {
            show(&console, &visit, FormView::refused(LABELS, &form, in_words(error))?, top_up).await
        }
    }
}

/// Rephrases an error of the API for users who don't know its operations.
fn in_words(error: Error) -> Error {
    match error.code {
        Code::NoPaymentMethod => Error::new(error.code).message("No card is saved. Save one first."),
        _ => error,
    }
}

/// Returns the form filled with the current values of an automatic top-up.
fn filled(top_up: &AutoTopUp) -> Result<FormView, Error> {
    let amount = |amount: Nano| (top_up.restore_to > Nano::ZERO).then_some(amount);
    FormView::new(LABELS)
        .with("enabled", top_up.is_enabled.to_string())
        .with_optional("threshold", amount(top_up.threshold))
        .with_optional("restore_to", amount(top_up.restore_to))
        .with_optional("monthly_cap", top_up.monthly_cap)
        .versioned()
}

/// Returns an automatic top-up in a few words, with the kind of its badge.
pub fn state(top_up: &AutoTopUp) -> (&'static str, &'static str) {
    match (top_up.is_enabled, top_up.paused_reason) {
        (false, _) => ("Off", ""),
        (true, None) => ("On", "good"),
        (true, Some(_)) => ("Paused", "warn"),
    }
}

/// Returns the reason for the pause in words.
fn reason(reason: PausedReason) -> &'static str {
    match reason {
        PausedReason::Declined => "the card was declined",
        PausedReason::AuthenticationRequired => {
            "the bank requires the cardholder to confirm a charge. Open the payment to confirm it"
        }
        PausedReason::MonthlyCap => "the monthly maximum is reached",
        PausedReason::NoPaymentMethod => "no card is saved",
        PausedReason::TaxLocation => {
            "tax can’t be computed without an address. Buy credit once, and Stripe’s page asks for the address"
        }
        PausedReason::Refunded => "a payment was refunded",
        PausedReason::Disputed => "a payment was disputed",
    }
}

async fn show(
    console: &Console,
    visit: &Visit<OrgScope>,
    form: FormView,
    top_up: AutoTopUp,
) -> Result<Page, Error> {
    let organization_id = visit.scope.organization_id();
    let shell = Shell::read(console, &visit.person).await?;
    let currency = currency(console, organization_id).await?;
    let least = show::exact(console.payments.settings.minimum(&currency), &currency);
    let is_taxed = console.payments.settings.stripe_tax;
    let page = TopUpPage {
        tabs: super::tabs(&shell, Tab::Payments),
        form,
        current: filled(&top_up)?,
        paused: top_up.paused_reason.filter(|_| top_up.is_enabled).map(reason),
        top_up,
        card: cards::read(&console.payments, organization_id).await?,
        gap: format!("The available balance after a charge. Must be at least {least} above the threshold."),
        cap_hint: if is_taxed { TAXED_CAP } else { CAP },
        currency,
        is_on: console.payments.is_on(),
        is_taxed,
        may_pay: super::may_pay(console, &shell),
        shell,
    };
    Page::with_form(&page.form, &page)
}
