//! The work of the jobs and of an operator.

use tollkeeper::clock::{DAY_MS, Month, Time};
use tollkeeper::db::sql;
use tollkeeper::ids::{InvoiceId, OrganizationId};

use tollkeeper::billing::bookkeeping::credits::{self, NewCredit};
use tollkeeper::billing::bookkeeping::{closing, invoice_changes};
use tollkeeper::money::Nano;

use tollkeeper::trail::Trail;

use super::history::{History, TIERS};
use super::lots::{GRANT, Lot, PAYMENT, PURCHASE};

/// The smallest payment, in nano.
const CENT: i128 = 10_000_000;

impl History<'_> {
    pub fn organization_id(&self) -> OrganizationId {
        OrganizationId::parse(&self.place.organization).unwrap()
    }

    /// Runs the scheduler on one of the two servers.
    pub async fn work(&mut self) {
        let now = self.world.clock.now();
        let app = self.one_app();
        tollkeeper::billing::expired_reservations::expire_due(&app.billing).await.unwrap();
        let trail = Trail::system();
        credits::expire_due(&app.billing, &trail).await.unwrap();
        let closed = closing::close_due(&app.billing, now, &trail, None).await.unwrap();
        assert!(closed.failed.is_empty(), "{:?}", closed.failed);
        let ended = |history: &Self| -> i128 { history.books.lots.iter().map(|lot| lot.ended).sum() };
        let before = (self.books.reservations.len(), ended(self), self.books.bills.len());
        self.books.expire(now.unix_ms());
        while Month::from_unix_months(self.books.open_month).end().plus_ms(DAY_MS) <= now {
            self.books.close(&TIERS, now.unix_ms());
        }
        for (what, happened) in [
            ("expired reservation", self.books.reservations.len() < before.0),
            ("expired credit", ended(self) > before.1),
            ("bill", self.books.bills.len() > before.2),
            ("carried over", self.books.bills[before.2..].iter().any(|bill| bill.carried > 0)),
            ("less than nothing", self.books.bills[before.2..].iter().any(|bill| bill.exact < 0)),
        ] {
            if happened {
                self.count(what);
            }
        }
        self.note("the jobs have their turn".to_owned());
    }

    /// Reads the ids of the credits that refunds have created.
    pub async fn name_returns(&mut self) {
        for at in 0..self.books.lots.len() {
            if !self.books.lots[at].id.is_empty() {
                continue;
            }
            let mut tx = self.world.app.db.read().await.unwrap();
            let found: Vec<(String,)> = sql("SELECT id FROM credits
                 WHERE organization_id = $1 AND kind IN ('correction', 'discount', 'void') AND amount_nano = $2 ORDER BY id")
                .bind(self.organization_id())
                .bind(i64::try_from(self.books.lots[at].amount).unwrap())
                .all(&mut tx)
                .await
                .unwrap();
            let is_new = |id: &String| self.books.lots.iter().all(|lot| lot.id != *id);
            let found = found.into_iter().map(|(id,)| id).find(is_new);
            self.books.lots[at].id = found.unwrap_or_else(|| self.fail("no credit for the returned amount"));
            self.count("given back as a new credit");
        }
    }

    /// Adds a credit, as the command does.
    pub async fn credit(&mut self) {
        let nano = i128::from(1 + self.below(3)) * CENT;
        let grant = self.below(2) == 0;
        let until = (self.below(2) == 0).then(|| self.now_ms() + i64::from(1 + self.below(40)) * DAY_MS);
        let new = NewCredit {
            organization_id: self.organization_id(),
            amount: Nano::from_units(nano),
            reference: self.next_reference(),
            is_grant: grant,
            expires_at: until.map(Time::from_unix_ms),
        };
        let (app, open) = (self.one_app(), self.open_bills().len());
        let added = credits::add(&app.billing, &new, &Trail::operator())
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        self.note(format!("credit {nano} nano, grant: {grant}, until {until:?}"));
        let rank = if grant { GRANT } else { PURCHASE };
        self.bring_in(added.credit.id.to_string(), nano, rank, until, None);
        self.count("credit");
        if self.open_bills().len() < open {
            self.count("paid by credit");
        }
    }

    fn bring_in(&mut self, id: String, nano: i128, rank: u8, until_ms: Option<i64>, bill: Option<usize>) {
        let since_ms = self.now_ms();
        let (uses, ended) = Default::default();
        let lot = Lot { id, amount: nano, left: nano, rank, since_ms, until_ms, ended, uses };
        self.books.end_credits(since_ms);
        self.books.bring_in(lot, bill, since_ms);
    }

    fn open_bills(&self) -> Vec<usize> {
        let bills = self.books.bills.iter().enumerate();
        bills.filter(|(_, bill)| bill.due > 0).map(|(at, _)| at).collect()
    }

    async fn invoice_of(&self, month: i64) -> InvoiceId {
        let mut tx = self.world.app.db.read().await.unwrap();
        let month = Month::from_unix_months(month);
        tollkeeper::billing::store::invoices::of_month(&mut tx, self.organization_id(), month)
            .await
            .unwrap()
            .unwrap()
            .id
    }

    /// Marks an open invoice as paid outside the service.
    pub async fn mark_paid(&mut self) {
        let open = self.open_bills();
        if open.is_empty() {
            return;
        }
        let at = open[usize::from(self.below(u8::try_from(open.len()).unwrap()))];
        // Credits that have expired end first, and don't pay an invoice.
        let (month, due) = (self.books.bills[at].month, self.books.bills[at].due);
        let (id, app) = (self.invoice_of(month).await, self.one_app());
        let settled = invoice_changes::mark_paid(&app.billing, id, None, &Trail::operator()).await;
        let credit = settled.unwrap_or_else(|error| panic!("{error}")).credit.unwrap();
        let nano = (due + CENT - 1) / CENT * CENT;
        self.note(format!("the invoice of {month} is paid with {nano}"));
        self.assert_equal("a payment", &credit.amount.units(), &nano);
        self.bring_in(credit.id.to_string(), nano, PAYMENT, None, Some(at));
        self.count("paid from outside");
    }

    /// Voids an invoice, which may already be void.
    pub async fn void(&mut self) {
        if self.books.bills.is_empty() {
            return;
        }
        let at = usize::from(self.below(u8::try_from(self.books.bills.len()).unwrap()));
        let bill = self.books.bills[at].clone();
        let (id, app) = (self.invoice_of(bill.month).await, self.one_app());
        let settled = invoice_changes::void(&app.billing, id, &Trail::operator()).await;
        self.note(format!("the invoice of {} is taken back", bill.month));
        if !bill.is_void && bill.nano < 0 {
            assert!(settled.is_err(), "an invoice that gives money back is void");
            return;
        }
        let was_unchanged = settled.unwrap_or_else(|error| panic!("{error}")).was_unchanged;
        self.assert_equal("that it was void", &was_unchanged, &bill.is_void);
        if !bill.is_void {
            let now_ms = self.now_ms();
            self.books.void(at, now_ms);
            self.count("void");
        }
    }
}
