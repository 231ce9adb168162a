//! Wallets: the balances of organizations, their reserved amounts, and the open months.

use std::sync::LazyLock;

use cluster::clock_guard::ClockGuard;
use db::{Page, Row, SERVER_TIME, Tx, contains_pattern, sql};
use events::data::BalanceChanged;
use kernel::clock::{Month, Time};
use kernel::ids::OrganizationId;
use kernel::money::Nano;
use kernel::random::Random;

use crate::rules::balances::Standing;
use crate::rules::credit_limits::{Credit, DemoCredit};

/// The wallet of an organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wallet {
    pub organization_id: OrganizationId,
    /// ISO 4217 code.
    pub currency: String,
    /// The amount by which the balance may go below zero.
    pub credit: Credit,
    /// The balance: the sum of the ledger entries; negative if money is owed.
    pub posted: Nano,
    /// The sum of the reservations.
    pub reserved: Nano,
    /// The first month that isn't closed.
    pub open_month: Month,
    /// The first expiry of the credits that aren't used up.
    pub next_expiry_at: Option<Time>,
    /// The number of budgets.
    pub budgets: i64,
    /// The available amount below which an automatic top-up is requested; `None` if no top-up is requested.
    pub top_up_below: Option<Nano>,
    /// The threshold of the balance's alert; `None` without one.
    pub alert_below: Option<Nano>,
    /// In a locked wallet, the current time ([`ClockGuard::time`]), which decides whether credits and
    /// reservations have ended. In another wallet, the time of the last write.
    pub locked_at: Time,
    /// The stored values from which the standing last sent to webhooks was computed.
    announced: StandingBasis,
}

db::row!(Wallet {
    organization_id,
    currency,
    credit: credit,
    posted: "posted_nano",
    reserved: "reserved_nano",
    open_month,
    next_expiry_at,
    budgets,
    top_up_below: "top_up_below_nano",
    alert_below: "alert_below_nano",
    locked_at: "updated_at",
    announced: announced
});

fn credit(row: &Row) -> Result<Credit, db::Error> {
    Ok(Credit { granted: row.get("credit_limit_nano")?, has_demo_credit: row.get("has_demo_credit")? })
}

fn announced(row: &Row) -> Result<StandingBasis, db::Error> {
    let (posted, alert_below) = (row.get("posted_nano")?, row.get("alert_below_nano")?);
    Ok(StandingBasis { posted, credit: credit(row)?, alert_below })
}

/// The values that determine the standing of a balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StandingBasis {
    posted: Nano,
    credit: Credit,
    alert_below: Option<Nano>,
}

impl StandingBasis {
    fn standing(self, demo: DemoCredit) -> Standing {
        Standing::of(self.posted, self.credit.limit(demo), self.alert_below)
    }
}

impl Wallet {
    /// Returns the amount by which the balance may currently go below zero.
    pub fn credit_limit(&self, demo: DemoCredit) -> Nano {
        self.credit.limit(demo)
    }

    /// Returns the amount that can be spent without the credit limit: the posted amount minus the reserved
    /// amount.
    pub fn available(&self) -> Nano {
        Nano::from_units(self.posted.units() - self.reserved.units())
    }

    /// Returns the amount that can be spent, including the credit limit.
    pub fn spendable(&self, demo: DemoCredit) -> Nano {
        Nano::from_units(self.available().units() + self.credit_limit(demo).units())
    }

    /// Refuses an amount that would make the balance overflow.
    ///
    /// # Errors
    /// The message for an operator, which mentions `--amount`.
    pub fn check_fits(&self, amount: Nano) -> Result<(), String> {
        let after = Nano::from_units(self.posted.units() + amount.units());
        if amount.to_i64().is_none() || after.to_i64().is_none() {
            let max = Nano::from_units(i64::MAX.into());
            return Err(format!("--amount {amount} is too large: the maximum balance of a wallet is {max}"));
        }
        Ok(())
    }

    /// Adds an amount, which may be negative, to the posted balance.
    pub fn post(&mut self, to_wallet: Nano) {
        self.posted = Nano::from_units(self.posted.units() + to_wallet.units());
    }

    /// Lowers `next_expiry_at` to the expiry of a credit that isn't used up.
    pub fn note_expiry(&mut self, expires_at: Option<Time>) {
        self.next_expiry_at = match (self.next_expiry_at, expires_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

const COLUMNS: &str =
    "organization_id, currency, credit_limit_nano, has_demo_credit, posted_nano, reserved_nano,
     open_month, next_expiry_at, budgets, top_up_below_nano, alert_below_nano, updated_at";

/// Adds the empty wallet of a new organization.
pub async fn insert(
    tx: &mut Tx,
    organization_id: OrganizationId,
    currency: &str,
    credit: Credit,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO wallets (organization_id, currency, credit_limit_nano, posted_nano, reserved_nano,
             open_month, created_at, updated_at, has_demo_credit)
         VALUES ($1, $2, $3, 0, 0, $4, $5, $5, $6)")
    .bind(organization_id)
    .bind(currency)
    .bind(nano(credit.granted)?)
    .bind(now.day().month())
    .bind(now)
    .bind(credit.has_demo_credit)
    .defer(tx)
    .await?;
    record_credit(tx, organization_id, credit).await
}

/// Records the new credit of a wallet. The audit compares the last record with the wallet.
async fn record_credit(
    tx: &mut Tx,
    organization_id: OrganizationId,
    credit: Credit,
) -> Result<(), db::Error> {
    sql("INSERT INTO credit_limit_changes (organization_id, number, credit_limit_nano, has_demo_credit)
         SELECT $1, COALESCE(MAX(number), 0) + 1, CAST($2 AS BIGINT), CAST($3 AS BIGINT)
         FROM credit_limit_changes WHERE organization_id = $1")
    .bind(organization_id)
    .bind(nano(credit.granted)?)
    .bind(credit.has_demo_credit)
    .defer(tx)
    .await
}

static GET: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM wallets WHERE organization_id = $1"));

/// Returns a wallet.
pub async fn get(tx: &mut Tx, organization_id: OrganizationId) -> Result<Option<Wallet>, db::Error> {
    sql(GET.as_str()).bind(organization_id).optional(tx).await
}

/// A wallet with the plan and the open invoices of its organization.
pub struct WalletAccount {
    pub wallet: Wallet,
    pub plan: String,
    /// The number of open invoices.
    pub open_invoices: i64,
    /// The sum of the amounts due on them.
    pub due: Nano,
}

db::row!(WalletAccount { wallet: Wallet::from_row, plan, open_invoices, due: "due_nano" });

static ACCOUNT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS}, (SELECT plan FROM organizations WHERE id = $1) AS plan,
                (SELECT COUNT(*) FROM invoices i
                    WHERE i.organization_id = $1 AND i.status = 'open') AS open_invoices,
                (SELECT CAST(COALESCE(SUM(i.due_nano), 0) AS BIGINT) FROM invoices i
                    WHERE i.organization_id = $1 AND i.status = 'open') AS due_nano
         FROM wallets WHERE organization_id = $1 AND EXISTS (SELECT 1 FROM organizations WHERE id = $1)"
    )
});

/// Returns the wallet, plan and open invoices of an organization; `None` if it doesn't exist.
pub async fn account(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Option<WalletAccount>, db::Error> {
    sql(ACCOUNT.as_str()).bind(organization_id).optional(tx).await
}

static LOCK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE wallets SET updated_at = $2 WHERE organization_id = $1
         RETURNING {COLUMNS}, {SERVER_TIME} AS server_time"
    )
});

/// The row of a locked wallet.
struct LockedRow {
    wallet: Wallet,
    server_time: Option<Time>,
}

db::row!(LockedRow { wallet: Wallet::from_row, server_time });

/// Locks a wallet until the transaction ends. Several wallets must be locked in the order of their
/// organizations' ids, after every other row that the transaction writes except credits, reservations and the
/// ledger.
pub async fn lock(
    tx: &mut Tx,
    organization_id: OrganizationId,
    clock_guard: &ClockGuard,
) -> Result<Option<Wallet>, db::Error> {
    let locked = sql(LOCK.as_str()).bind(organization_id).bind(clock_guard.clock().now());
    let locked: Option<LockedRow> = locked.optional(tx).await?;
    Ok(locked.map(|LockedRow { wallet, server_time }| {
        // The time is read after the wait for the lock.
        Wallet { locked_at: clock_guard.time(server_time), ..wallet }
    }))
}

/// Locks a wallet like [`lock`]. Every organization has a wallet, from its creation until after its deletion.
///
/// # Errors
/// The wallet is missing; the database fails.
pub async fn lock_existing(
    tx: &mut Tx,
    organization_id: OrganizationId,
    clock_guard: &ClockGuard,
) -> Result<Wallet, db::Error> {
    lock(tx, organization_id, clock_guard).await?.ok_or_else(|| missing(organization_id))
}

/// Returns the error for an organization without a wallet.
pub fn missing(organization_id: OrganizationId) -> db::Error {
    db::Error::Internal(format!("{organization_id} has no wallet"))
}

/// Writes a locked wallet: the posted and reserved amounts, the open month and the next expiry. Records when
/// the balance falls below the threshold of its alert and when it is no longer below, and notifies webhooks
/// if its standing has changed.
pub async fn write(
    tx: &mut Tx,
    wallet: &mut Wallet,
    demo: DemoCredit,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    queue_standing_events(tx, wallet, demo, now, random).await?;
    sql("UPDATE wallets SET posted_nano = $2, reserved_nano = $3, open_month = $4, next_expiry_at = $5,
             low_at = CASE WHEN $2 < alert_below_nano THEN COALESCE(low_at, updated_at) END,
             low_posted_nano = CASE WHEN $2 < alert_below_nano
                 THEN CASE WHEN low_at IS NULL THEN $2 ELSE low_posted_nano END END,
             low_mailed_at = CASE WHEN $2 < alert_below_nano THEN low_mailed_at END
         WHERE organization_id = $1")
    .bind(wallet.organization_id)
    .bind(nano(wallet.posted)?)
    .bind(nano(wallet.reserved)?)
    .bind(wallet.open_month)
    .bind(wallet.next_expiry_at)
    .defer(tx)
    .await
}

/// Queues events for webhooks if the standing of a locked wallet's balance has changed since the last events.
pub async fn queue_standing_events(
    tx: &mut Tx,
    wallet: &mut Wallet,
    demo: DemoCredit,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    let basis =
        StandingBasis { posted: wallet.posted, credit: wallet.credit, alert_below: wallet.alert_below };
    for change in basis.standing(demo).changes_since(wallet.announced.standing(demo)) {
        let changed = BalanceChanged {
            change,
            organization_id: wallet.organization_id,
            currency: wallet.currency.clone(),
            balance: wallet.posted,
            credit_limit: wallet.credit_limit(demo),
            alert_below: wallet.alert_below,
        };
        events::emit(tx, &changed, now, random).await?;
    }
    wallet.announced = basis;
    Ok(())
}

/// Sets the credit of a locked wallet.
pub async fn set_credit(
    tx: &mut Tx,
    organization_id: OrganizationId,
    credit: Credit,
) -> Result<(), db::Error> {
    sql("UPDATE wallets SET credit_limit_nano = $2, has_demo_credit = $3 WHERE organization_id = $1")
        .bind(organization_id)
        .bind(nano(credit.granted)?)
        .bind(credit.has_demo_credit)
        .defer(tx)
        .await?;
    record_credit(tx, organization_id, credit).await
}

/// An organization as operators see it, possibly a deleted one whose books are still kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalletOverview {
    pub wallet: Wallet,
    /// The name, or the former name of a deleted organization.
    pub name: Option<String>,
    /// `None` if the organization is deleted.
    pub created_at: Option<Time>,
    /// The number of open invoices.
    pub open_invoices: i64,
}

db::row!(WalletOverview { wallet: Wallet::from_row, name, created_at, open_invoices });

/// Selects the columns of a [`WalletOverview`]; a condition on `w`, the wallet, follows.
const OVERVIEW: &str =
    "SELECT w.organization_id, w.currency, w.credit_limit_nano, w.has_demo_credit, w.posted_nano,
    w.reserved_nano, w.open_month,
        w.next_expiry_at, w.budgets, w.top_up_below_nano, w.alert_below_nano, w.updated_at,
        COALESCE(o.name, w.former_name) AS name, o.created_at,
        (SELECT COUNT(*) FROM invoices i
            WHERE i.organization_id = w.organization_id AND i.status = 'open') AS open_invoices
    FROM wallets w LEFT JOIN organizations o ON o.id = w.organization_id";

static OVERVIEW_OF: LazyLock<String> = LazyLock::new(|| format!("{OVERVIEW} WHERE w.organization_id = $1"));
static OVERVIEWS: LazyLock<String> =
    LazyLock::new(|| format!("{OVERVIEW} WHERE w.organization_id > $1 ORDER BY w.organization_id LIMIT $2"));

/// The statement of [`page`].
pub static PAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{OVERVIEW} WHERE o.name_folded LIKE $1 ESCAPE '\\' ORDER BY w.organization_id DESC LIMIT $2 OFFSET $3"
    )
});

/// Returns one page of the organizations whose folded name contains the text, the newest first.
pub async fn page(tx: &mut Tx, search_folded: &str, page: Page) -> Result<Vec<WalletOverview>, db::Error> {
    let statement = sql(PAGE.as_str()).bind(contains_pattern(search_folded));
    statement.bind(page.page_size).bind(page.offset()).heavy().all(tx).await
}

/// Returns the number of the organizations that [`page`] lists.
pub async fn count(tx: &mut Tx, search_folded: &str) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) AS value FROM wallets w JOIN organizations o ON o.id = w.organization_id
         WHERE o.name_folded LIKE $1 ESCAPE '\\'")
        .bind(contains_pattern(search_folded))
        .heavy()
        .one(tx)
        .await?;
    Ok(count)
}

/// Returns an organization that exists or had a wallet.
pub async fn overview(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Option<WalletOverview>, db::Error> {
    sql(OVERVIEW_OF.as_str()).bind(organization_id).optional(tx).await
}

/// Returns the organizations after the given one by id, which is the order of their creation.
pub async fn overviews(
    tx: &mut Tx,
    after: Option<OrganizationId>,
    limit: i64,
) -> Result<Vec<WalletOverview>, db::Error> {
    let after = after.map_or_else(String::new, |id| id.to_string());
    sql(OVERVIEWS.as_str()).bind(after).bind(limit).all(tx).await
}

/// Stores the name of an organization that is deleted, for its future invoices.
pub async fn set_former_name(
    tx: &mut Tx,
    organization_id: OrganizationId,
    name: &str,
) -> Result<(), db::Error> {
    sql("UPDATE wallets SET former_name = $2 WHERE organization_id = $1")
        .bind(organization_id)
        .bind(name)
        .defer(tx)
        .await
}

/// Returns the name of an organization, or its last name if it was deleted; `None` without a wallet.
pub async fn owner_name(tx: &mut Tx, organization_id: OrganizationId) -> Result<Option<String>, db::Error> {
    let name: Option<(String,)> = sql("SELECT COALESCE(o.name, w.former_name, w.organization_id)
         FROM wallets w LEFT JOIN organizations o ON o.id = w.organization_id WHERE w.organization_id = $1")
    .bind(organization_id)
    .optional(tx)
    .await?;
    Ok(name.map(|(name,)| name))
}

/// Returns the stored form of an amount.
///
/// # Errors
/// The amount exceeds 64 bits.
pub fn nano(amount: Nano) -> Result<i64, db::Error> {
    amount.to_i64().ok_or_else(|| db::Error::Internal(format!("{amount} doesn't fit in 64 bits as nanos")))
}
