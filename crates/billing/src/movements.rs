//! The movements of a wallet: all changes of its posted balance, which is the sum of its movements.

use crate::rules::movements::reference;
use crate::rules::periods::{self, DateBound, Interval};
use crate::{Billing, store};
use db::window::Window;
use kernel::clock::Time;
use kernel::error::{Code, Detail, Error};
use kernel::ids::{LedgerTransactionId, OrganizationId};
use kernel::money::Nano;
use kernel::page::Page;

use crate::store::ledger::{self, WalletMovement};

pub use crate::store::ledger::Movement as Kind;

/// Maximum number of movements that [`list_all`] returns, to bound the memory.
const MAX_ROWS: i64 = 100_000;

/// The bounds of a list. Without bounds, the list contains all movements.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The start, inclusive. A date is the start of that day.
    pub start: Option<DateBound>,
    /// The end, exclusive.
    pub end: Option<DateBound>,
}

/// A change of a wallet's posted balance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Movement {
    pub id: LedgerTransactionId,
    pub time: Time,
    pub kind: Kind,
    /// Positive if the balance increased.
    pub amount: Nano,
    /// The reference of a new credit, or the id of a credit or an invoice, or a month.
    pub reference: Option<String>,
}

impl From<WalletMovement> for Movement {
    fn from(row: WalletMovement) -> Self {
        let WalletMovement { id, movement: kind, idempotency_key, happened_at: time, to_wallet } = row;
        let reference = reference(kind.as_str(), &idempotency_key, &id.to_string()).map(str::to_owned);
        Self { id, time, kind, amount: to_wallet, reference }
    }
}

/// Movements of an organization, the newest first.
#[derive(Clone, Debug)]
pub struct Movements {
    pub rows: Vec<Movement>,
    /// The number of movements between the bounds.
    pub total: i64,
    /// ISO 4217 code.
    pub currency: String,
}

/// Lists a page of an organization's movements.
///
/// # Errors
/// 400 if the end is before the start, 404 for an unknown organization; the database fails.
pub async fn list(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
    page: Page,
) -> Result<Movements, Error> {
    let (interval, currency) = begin(billing, organization_id, query).await?;
    let mut tx = billing.db().reports().await?;
    let total = ledger::count(&mut tx, organization_id, interval).await?;
    let rows = match Window::of(page, total) {
        Some(window) => ledger::list(&mut tx, organization_id, interval, window).await?,
        None => Vec::new(),
    };
    Ok(Movements { rows: rows.into_iter().map(Movement::from).collect(), total, currency })
}

/// Lists all of an organization's movements between the bounds.
///
/// # Errors
/// The errors of [`list`]; 400 if more than 100,000 movements match.
pub async fn list_all(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
) -> Result<Movements, Error> {
    let (interval, currency) = begin(billing, organization_id, query).await?;
    // An extra row shows whether the maximum is exceeded.
    let window = Window { from_end: false, offset: 0, limit: MAX_ROWS + 1 };
    let rows = ledger::list(&mut billing.db().reports().await?, organization_id, interval, window).await?;
    let total = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    if total > MAX_ROWS {
        let message = format!(
            "The range from `start_date` to `end_date` has more than {MAX_ROWS} movements, which is too many \
             for one file: narrow the range."
        );
        let detail = Detail { param: "start_date".to_owned(), code: "too_many", message };
        return Err(Error::invalid(vec![detail]));
    }
    Ok(Movements { rows: rows.into_iter().map(Movement::from).collect(), total, currency })
}

/// Returns the interval of a list, and the organization's currency.
async fn begin(
    billing: &Billing,
    organization_id: OrganizationId,
    query: Query,
) -> Result<(Interval, String), Error> {
    let interval = periods::interval(query.start, query.end).map_err(Error::invalid)?;
    let wallet = store::wallets::get(&mut billing.db().read().await?, organization_id).await?;
    Ok((interval, wallet.ok_or(Code::OrganizationNotFound)?.currency))
}
