//! Versions of prices and discounts, and the catalogs in force.

use std::sync::LazyLock;

use crate::{
    ComponentPrices, Conditions, DiscountVersion, NewPrice, NewVersions, PartPrices, Price, PriceBook,
    VolumeDiscount,
};
use cluster::changes::{self, Change};
use db::{Row, Tx, sql};
use kernel::clock::{Month, Time};
use kernel::futures::BoxFuture;
use kernel::money::{Pico, Ppm};

/// A row of prices. A row without amounts withdraws the version.
struct PriceRow {
    model: String,
    price: Option<Price>,
}
db::row!(PriceRow { model, price: read_price });

fn read_price(row: &Row) -> Result<Option<Price>, db::Error> {
    let effective_at = row.get("effective_at")?;
    let prices: (Option<i64>, Option<i64>) = (row.get("prompt_pico")?, row.get("completion_pico")?);
    let pico = |units: i64| Pico::from_units(units.into());
    let cached_prompt = row.get::<Option<i64>>("cached_prompt_pico")?.map(pico);
    let conditions = parsed(&row.get::<String>("conditions")?, "conditions", Conditions::parse)?;
    let parts = row.get::<Option<String>>("components")?.unwrap_or_default();
    let parts = parsed(&parts, "components", PartPrices::parse)?;
    Ok(prices.0.zip(prices.1).map(|(prompt, completion)| {
        let rates =
            ComponentPrices { prompt: pico(prompt), cached_prompt, completion: pico(completion), parts };
        Price::conditional(effective_at, conditions, rates)
    }))
}

fn parsed<T>(text: &str, what: &str, parse: fn(&str) -> Option<T>) -> Result<T, db::Error> {
    parse(text).ok_or_else(|| db::Error::Internal(format!("the {what} of a price are {text:?}")))
}

/// Every row of prices: prices without conditions, whose table older servers also read, and prices with
/// conditions.
const ROWS: &str =
    "SELECT model, effective_at, '' AS conditions, effective_at AS version, revision, prompt_pico,
         cached_prompt_pico, completion_pico, components
     FROM price_versions
     UNION ALL SELECT model, effective_at, conditions, version, revision, prompt_pico, cached_prompt_pico,
         completion_pico, components
     FROM conditional_prices";

/// A row of `discount_versions`. A row without tiers withdraws the version.
struct DiscountRow {
    effective_at: Time,
    tiers: Option<Vec<VolumeDiscount>>,
}
db::row!(DiscountRow { effective_at, tiers: read_tiers });

fn read_tiers(row: &Row) -> Result<Option<Vec<VolumeDiscount>>, db::Error> {
    row.get::<Option<String>>("tiers")?.as_deref().map(parse_tiers).transpose()
}

/// Returns all versions that are valid.
pub fn book(tx: &mut Tx) -> BoxFuture<'_, Result<PriceBook, db::Error>> {
    Box::pin(read_book(tx))
}

async fn read_book(tx: &mut Tx) -> Result<PriceBook, db::Error> {
    // The row with the highest revision of each version counts.
    let prices: Vec<PriceRow> = sql(BOOK.as_str()).all(tx).await?;
    let discounts: Vec<DiscountRow> = sql("SELECT effective_at, tiers FROM discount_versions v
         WHERE revision = (SELECT MAX(revision) FROM discount_versions w
             WHERE w.effective_at = v.effective_at)")
    .all(tx)
    .await?;
    let prices = prices.into_iter().filter_map(|row| row.price.map(|price| (row.model, price)));
    let discounts = discounts.into_iter().filter_map(|DiscountRow { effective_at, tiers }| {
        tiers.map(|tiers| DiscountVersion { effective_at, tiers })
    });
    Ok(PriceBook::new(prices, discounts))
}

/// Selects the newest row of each price.
static BOOK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT model, effective_at, conditions, prompt_pico, cached_prompt_pico, completion_pico, components FROM
             (SELECT model, effective_at, conditions, prompt_pico, cached_prompt_pico, completion_pico, components,
                  ROW_NUMBER() OVER (PARTITION BY model, version ORDER BY revision DESC) AS place
              FROM ({ROWS}) r) newest
         WHERE place = 1"
    )
});

static PRICE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT model, effective_at, conditions, prompt_pico, cached_prompt_pico, completion_pico, components
         FROM ({ROWS}) r WHERE model = $1 AND version = $2 ORDER BY revision DESC LIMIT 1"
    )
});

/// Returns the price of a model with this version.
pub async fn price(tx: &mut Tx, model: &str, version: i64) -> Result<Option<Price>, db::Error> {
    let row: Option<PriceRow> = sql(PRICE.as_str()).bind(model).bind(version).optional(tx).await?;
    Ok(row.and_then(|row| row.price))
}

/// Adds versions.
pub async fn insert(tx: &mut Tx, new: &NewVersions, now: Time) -> Result<(), db::Error> {
    for (model, change) in &new.prices {
        insert_price(tx, model, change, now).await?;
    }
    for (effective_at, tiers) in &new.discounts {
        sql("INSERT INTO discount_versions (effective_at, revision, tiers, recorded_at)
             SELECT CAST($1 AS BIGINT), COALESCE(MAX(revision), 0) + 1, $2, CAST($3 AS BIGINT)
             FROM discount_versions WHERE effective_at = $1")
        .bind(*effective_at)
        .bind(tiers.as_deref().map(tiers_text))
        .bind(now)
        .execute(tx)
        .await?;
    }
    Ok(())
}

async fn insert_price(tx: &mut Tx, model: &str, change: &NewPrice, now: Time) -> Result<(), db::Error> {
    let (price, amounts) = match change {
        NewPrice::Added(price) => (price, Some(price)),
        NewPrice::Withdrawn(price) => (price, None),
    };
    let text = match price.conditions.is_empty() {
        true => {
            "INSERT INTO price_versions (model, effective_at, revision, prompt_pico, completion_pico,
                 recorded_at, cached_prompt_pico, components)
             SELECT $1, CAST($2 AS BIGINT), COALESCE(MAX(revision), 0) + 1, CAST($3 AS BIGINT),
                 CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS TEXT)
             FROM price_versions WHERE model = $1 AND effective_at = $2"
        }
        false => {
            "INSERT INTO conditional_prices (model, effective_at, revision, prompt_pico, completion_pico,
                 recorded_at, cached_prompt_pico, components, version, conditions)
             SELECT $1, CAST($2 AS BIGINT), COALESCE(MAX(revision), 0) + 1, CAST($3 AS BIGINT),
                 CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS TEXT),
                 CAST($8 AS BIGINT), CAST($9 AS TEXT)
             FROM conditional_prices WHERE model = $1 AND version = $8"
        }
    };
    let mut statement = sql(text)
        .bind(model)
        .bind(price.effective_at)
        .bind(amounts.map(|price| pico(price.prompt)).transpose()?)
        .bind(amounts.map(|price| pico(price.completion)).transpose()?)
        .bind(now)
        .bind(amounts.and_then(|price| price.cached_prompt).map(pico).transpose()?)
        .bind(amounts.and_then(|price| price.parts.to_text()));
    if !price.conditions.is_empty() {
        statement = statement.bind(price.version).bind(price.conditions.to_text());
    }
    statement.execute(tx).await?;
    Ok(())
}

fn pico(amount: Pico) -> Result<i64, db::Error> {
    amount
        .to_i64()
        .ok_or_else(|| db::Error::Internal(format!("the price {amount} doesn't fit in 64 bits as picos")))
}

fn tiers_text(tiers: &[VolumeDiscount]) -> String {
    let tiers = tiers.iter().map(|tier| format!("{}:{}", tier.threshold, tier.discount.units()));
    tiers.collect::<Vec<_>>().join(" ")
}

fn parse_tiers(text: &str) -> Result<Vec<VolumeDiscount>, db::Error> {
    let tier = |tier: &str| {
        let (threshold, ppm) = tier.split_once(':')?;
        Some(VolumeDiscount {
            threshold: threshold.parse().ok()?,
            discount: Ppm::from_units(ppm.parse().ok()?),
        })
    };
    let tiers: Option<Vec<_>> = text.split_whitespace().map(tier).collect();
    tiers.ok_or_else(|| db::Error::Internal(format!("the tiers of a discount are {text:?}")))
}

/// Returns the fingerprint of the catalog in force; `None` if no catalog was ever in force.
pub async fn newest_catalog(tx: &mut Tx) -> Result<Option<String>, db::Error> {
    let newest: Option<(String,)> =
        sql("SELECT fingerprint FROM catalogs ORDER BY number DESC LIMIT 1").optional(tx).await?;
    Ok(newest.map(|(fingerprint,)| fingerprint))
}

/// Returns `true` if this catalog was ever in force.
pub async fn was_in_force(tx: &mut Tx, fingerprint: &str) -> Result<bool, db::Error> {
    let found: Option<(i64,)> = sql("SELECT number FROM catalogs WHERE fingerprint = $1 LIMIT 1")
        .bind(fingerprint)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Returns the number of the next catalog. No other transaction can put a catalog in force until this one
/// ends.
pub async fn lock(tx: &mut Tx) -> Result<i64, db::Error> {
    let (number,): (i64,) =
        sql("UPDATE sequences SET last = last + 1 WHERE name = 'catalogs' RETURNING last").one(tx).await?;
    Ok(number)
}

/// Puts a catalog in force, and announces it to other replicas unless it is the first one.
pub async fn insert_catalog(
    tx: &mut Tx,
    number: i64,
    fingerprint: &str,
    currency: &str,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO catalogs (number, fingerprint, currency, in_force_at) VALUES ($1, $2, $3, $4)")
        .bind(number)
        .bind(fingerprint)
        .bind(currency)
        .bind(now)
        .defer(tx)
        .await?;
    if number > 1 {
        changes::record(tx, Change::Catalog, now).await?;
    }
    Ok(())
}

/// Returns `true` if usage was ever recorded.
pub async fn is_used(tx: &mut Tx) -> Result<bool, db::Error> {
    let any: Option<(i64,)> = sql("SELECT day FROM usage_daily LIMIT 1").optional(tx).await?;
    Ok(any.is_some())
}

/// Returns the end of the last month that is closed for any organization.
pub async fn closed_before(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let rows: Vec<(Month, Time)> =
        sql("SELECT open_month, MIN(created_at) FROM wallets GROUP BY open_month ORDER BY open_month DESC")
            .heavy()
            .all(tx)
            .await?;
    // The first open month of a wallet is the month of its creation.
    let closed = rows.into_iter().find(|(open, created_at)| created_at.day().month() < *open);
    Ok(closed.map(|(open, _)| open.start()))
}

/// Returns the number of organizations with each other currency.
pub async fn other_currencies(tx: &mut Tx, currency: &str) -> Result<Vec<(String, i64)>, db::Error> {
    sql("SELECT currency, COUNT(*) AS count FROM wallets
         WHERE (currency < $1 OR currency > $1) AND organization_id IN (SELECT id FROM organizations)
         GROUP BY currency ORDER BY currency")
    .bind(currency)
    .all(tx)
    .await
}
