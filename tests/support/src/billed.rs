//! Writes billed usage directly, as the queue of the service listener does.

use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::billing::rules::books;
use tollkeeper::billing::rules::invoicing::{Item, ItemKind, Status};
use tollkeeper::catalog::{Kind, Tokens};
use tollkeeper::clock::{Day, Month};
use tollkeeper::db::sql;
use tollkeeper::ids::{InvoiceId, LedgerTransactionId, OrganizationId, PaymentId, SessionId};
use tollkeeper::money::{Nano, Pico};

use tollkeeper::billing::store::invoices::{Invoice, Issuer};
use tollkeeper::billing::store::ledger::{Account, Movement, Transfer};

use super::world::{Place, TestUser, World, id, insert_session};

/// Tokens of one key, model and day.
#[derive(Clone, Copy)]
pub struct Usage<'a> {
    pub place: &'a Place,
    pub key: &'a str,
    pub model: &'a str,
    pub day: Day,
    pub prompt: i64,
    pub completion: i64,
}

/// Prices usage at the start of its day, adds it to its daily row in the open month, and debits the whole
/// nanos by which the row grew.
pub async fn charge(world: &World, usage: Usage<'_>) {
    let catalog = world.app.catalog.now().clone();
    let model = catalog.get(usage.model).unwrap();
    let price = model.price_at(usage.day.start()).unwrap();
    let tokens = Tokens::new(usage.prompt, 0, usage.completion);
    let amount = tollkeeper::billing::rules::rating::rate(price, tokens).unwrap();
    let organization_id = OrganizationId::parse(&usage.place.organization).unwrap();
    let now = world.clock.now();
    let mut tx = world.app.db.write().await.unwrap();
    let clock_guard = &world.app.clock_guard;
    let wallet = tollkeeper::billing::store::wallets::lock(&mut tx, organization_id, clock_guard).await;
    let mut wallet = wallet.unwrap().unwrap();
    let month = usage.day.month().max(wallet.open_month);
    let kind = if model.kind == Kind::Chat { "chat" } else { "embeddings" };
    let (amount_pico, posted): (i64, i64) =
        sql("INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                                  requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $11, 0)
         ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
         SET requests = usage_daily.requests + excluded.requests,
             prompt_tokens = usage_daily.prompt_tokens + excluded.prompt_tokens,
             completion_tokens = usage_daily.completion_tokens + excluded.completion_tokens,
             amount_pico = usage_daily.amount_pico + excluded.amount_pico
         RETURNING amount_pico, posted_nano")
        .bind(organization_id)
        .bind(usage.place.project.as_str())
        .bind(usage.key)
        .bind(usage.model)
        .bind(price.effective_at)
        .bind(kind)
        .bind(usage.day)
        .bind(month)
        .bind(usage.prompt)
        .bind(usage.completion)
        .bind(amount.to_i64().unwrap())
        .one(&mut tx)
        .await
        .unwrap();
    let rise = Pico::from_units(amount_pico.into()).floor_nano().units() - i128::from(posted);
    sql("UPDATE usage_daily SET posted_nano = amount_pico / 1000 WHERE organization_id = $1")
        .bind(organization_id)
        .execute(&mut tx)
        .await
        .unwrap();
    let credits =
        tollkeeper::billing::store::credits::list_remaining(&mut tx, organization_id).await.unwrap();
    for part in books::charge(&credits, Nano::from_units(rise), Nano::ZERO, now) {
        tollkeeper::billing::store::credits::set_remaining(&mut tx, part.credit_id, part.remaining)
            .await
            .unwrap();
        tollkeeper::billing::store::credits::add_use(
            &mut tx,
            organization_id,
            month,
            part.credit_id,
            part.amount,
        )
        .await
        .unwrap();
    }
    let id = LedgerTransactionId::new(now, &world.app.random);
    let transfer = Transfer {
        id,
        organization_id,
        movement: Movement::Usage,
        idempotency_key: format!("usage:{id}"),
        account: Account::Usage,
        to_wallet: Nano::from_units(-rise),
    };
    tollkeeper::billing::store::ledger::record(&mut tx, &transfer, now).await.unwrap();
    wallet.posted = Nano::from_units(wallet.posted.units() - rise);
    tollkeeper::billing::store::wallets::write(
        &mut tx,
        &mut wallet,
        world.app.billing.demo_credit(),
        now,
        &world.app.random,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

/// Creates an invoice over zero for the first month of an organization, and returns its id.
pub async fn invoice(world: &World, organization: &str) -> String {
    let (now, organization_id) = (world.clock.now(), OrganizationId::parse(organization).unwrap());
    let mut tx = world.app.db.write().await.unwrap();
    let invoice = Invoice {
        id: InvoiceId::new(now, &world.app.random),
        number: tollkeeper::billing::store::invoices::next_number(&mut tx).await.unwrap(),
        organization_id,
        organization_name: "Somebody".into(),
        month: Month::from_unix_months(672),
        currency: "USD".into(),
        amount: Nano::ZERO,
        brought_forward: Nano::ZERO,
        due: Nano::ZERO,
        status: Status::Paid,
        finalized_at: now,
        paid_at: Some(now),
        voided_at: None,
        issuer: Issuer::default(),
    };
    let item = Item {
        kind: ItemKind::Usage,
        description: "svc-1, prompt tokens".into(),
        quantity: 7,
        unit_price: Pico::ZERO,
        amount: Pico::ZERO,
    };
    tollkeeper::billing::store::invoices::insert(&mut tx, &invoice, &[item]).await.unwrap();
    tx.commit().await.unwrap();
    invoice.id.to_string()
}

/// Returns an access token for a user whose session may have expired.
pub async fn fresh_token(world: &World, user: &TestUser) -> String {
    let (now, random) = (world.clock.now(), &world.app.random);
    let session = SessionId::new(now, random);
    let mut tx = world.app.db.write().await.unwrap();
    let ends = now.plus_ms(tollkeeper::clock::DAY_MS);
    insert_session(&mut tx, session, user.id, now, ends).await;
    tx.commit().await.unwrap();
    world.token(TokenKind::Access, user.id, session, 3600).await
}

/// Checks the invariants of an organization's money.
pub async fn check(world: &World, organization: &str) {
    let id = OrganizationId::parse(organization).unwrap();
    let mut tx = world.app.db.read().await.unwrap();
    let wallet = tollkeeper::billing::store::wallets::get(&mut tx, id).await.unwrap().unwrap();
    let sum = tollkeeper::billing::store::ledger::wallet_sum(&mut tx, id).await.unwrap();
    assert_eq!(wallet.posted, sum.amount, "the balance is the sum of the wallet's entries");
    let credits = tollkeeper::billing::store::credits::list_remaining(&mut tx, id).await.unwrap();
    let left: i128 = credits.iter().map(|credit| credit.remaining.units()).sum();
    let owed = left - wallet.posted.units();
    assert!(owed >= 0, "the balance is more than the credits contain: {owed}");
    let open = tollkeeper::billing::store::invoices::open(&mut tx, id).await.unwrap();
    let due: i128 = open.iter().map(|invoice| invoice.due.units()).sum();
    assert!(due <= owed, "{due} is due, {owed} is owed");
    let charged =
        tollkeeper::billing::store::months::charges_from(&mut tx, id, wallet.open_month).await.unwrap();
    let unpaid: i128 = charged.iter().map(|charged| charged.unpaid.units().max(0)).sum();
    // Refunds and disputes of payments took this money back although it was already spent. It isn't part of
    // the usage of any month.
    let text = "SELECT CAST(COALESCE(SUM(-e.amount_nano), 0) AS BIGINT) FROM ledger_transactions t
         JOIN ledger_entries e ON e.transaction_id = t.id AND e.account = 'wallet'
         WHERE t.organization_id = $1 AND t.idempotency_key LIKE 'payment:%:debt-%'";
    let (returned,): (i64,) = sql(text).bind(organization).one(&mut tx).await.unwrap();
    // Voiding an invoice also takes back the rounding differences of its credit notes: at most a nano for
    // each row that they rounded.
    let text = "SELECT COUNT(*) FROM usage_events e JOIN usage_events c ON c.corrects = e.event_id AND c.source = e.source
             AND c.organization_id = e.organization_id
         JOIN invoices i ON i.organization_id = e.organization_id AND i.voided_at IS NOT NULL
         WHERE e.organization_id = $1";
    let (rounded,): (i64,) = sql(text).bind(organization).one(&mut tx).await.unwrap();
    let beyond = owed - due - unpaid;
    assert!(
        (0..=i128::from(returned + 2 * rounded)).contains(&beyond),
        "a debt of {owed}: {due} are due, {unpaid} not billed yet"
    );
    let page = tollkeeper::db::Page { page: 1, page_size: 100 };
    let invoices = tollkeeper::billing::store::invoices::list(&mut tx, id, None, page).await.unwrap();
    let items = tollkeeper::billing::store::invoices::items(&mut tx, id, &invoices).await.unwrap();
    for (invoice, items) in invoices.iter().zip(items) {
        let sum: i128 = items.iter().map(|item| item.amount.units()).sum();
        assert_eq!(sum, invoice.amount.units() * 1_000, "the lines sum to the amount");
        for item in items {
            assert_eq!(item.unit_price.units() * i128::from(item.quantity), item.amount.units());
        }
        let is_open = invoice.status == Status::Open;
        assert_eq!(is_open, invoice.due > Nano::ZERO);
    }
    let (numbers, most): (i64, Option<i64>) =
        sql("SELECT COUNT(*), MAX(number) FROM invoices").one(&mut tx).await.unwrap();
    assert_eq!(numbers, most.unwrap_or(0), "numbers have no gaps");
    let (unbalanced,): (i64,) = sql("SELECT COUNT(*) FROM (SELECT transaction_id FROM ledger_entries
         GROUP BY transaction_id HAVING SUM(amount_nano) <> 0) t")
    .one(&mut tx)
    .await
    .unwrap();
    assert_eq!(unbalanced, 0);
}

/// Adds an abandoned payment, which needs no Stripe, and returns its id.
pub async fn payment(world: &World, place: &Place) -> String {
    let (now, random) = (world.clock.now(), &world.app.random);
    let payment_id = PaymentId::new(now, random);
    let mut tx = world.app.db.write().await.unwrap();
    sql("INSERT INTO payments (id, organization_id, kind, amount_minor, currency, status, caller, created_at, updated_at)
         VALUES ($1, $2, 'credit', 2500, 'USD', 'canceled', 'system', $3, $3)")
    .bind(payment_id)
    .bind(place.organization.as_str())
    .bind(now)
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    payment_id.to_string()
}

/// Returns the path of an organization's budgets.
pub fn budgets_path(organization: &str) -> String {
    format!("/v1/organizations/{organization}/billing/budgets")
}

/// Creates a budget that is too large to be exceeded, and returns its id.
pub async fn budget(world: &World, owner: &TestUser, place: &Place) -> String {
    let path = budgets_path(&place.organization);
    let body =
        serde_json::json!({"name": "Most", "scope": "organization", "period": "total", "limit": 1_000_000});
    id(&world.post(&path, &body).bearer(&owner.access_token).data().await)
}
