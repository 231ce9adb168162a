//! Stored documents, credits and the wallet. They are compared with the contract and with each other.

use std::collections::BTreeMap;

use tollkeeper::billing::rules::invoicing::{Item, ItemKind, Status};
use tollkeeper::clock::Month;
use tollkeeper::db::sql;

use super::books::NANO;
use super::history::{History, TIERS};

/// The sums of a document's lines, in pico.
#[derive(Clone, Copy, Default)]
struct Lines {
    /// The usage and the discounts.
    exact: i128,
    carried: i128,
    rounding: i128,
}

fn lines(items: &[Item]) -> Lines {
    let mut lines = Lines::default();
    for item in items {
        *match item.kind {
            ItemKind::Rounding => &mut lines.rounding,
            ItemKind::CarriedOver => &mut lines.carried,
            ItemKind::Usage | ItemKind::LateUsage | ItemKind::Discount | ItemKind::Correction => {
                &mut lines.exact
            }
        } += item.amount.units();
    }
    lines
}

impl History<'_> {
    /// Checks that the lines of each document equal the contract's amounts, and that the wallet's sum
    /// matches.
    pub async fn check_documents(&self) {
        let mut tx = self.world.app.db.read().await.unwrap();
        let id = self.organization_id();
        let page = tollkeeper::db::Page { page: 1, page_size: 100 };
        let mut invoices = tollkeeper::billing::store::invoices::list(&mut tx, id, None, page).await.unwrap();
        invoices.reverse();
        let items = tollkeeper::billing::store::invoices::items(&mut tx, id, &invoices).await.unwrap();
        let (first, last) = (Month::from_unix_months(0), Month::from_unix_months(100_000));
        let notes =
            tollkeeper::billing::store::credit_notes::between(&mut tx, id, first, last).await.unwrap();
        // The charges of the documents and their rounding, in pico.
        let (mut charged, mut rounding, mut documents) = (0, 0, 0);
        // The amounts that the documents debit from the wallet, in nano.
        let mut taken = 0;
        for ((invoice, items), bill) in invoices.iter().zip(items).zip(&self.books.bills) {
            let lines = lines(&items);
            let sum = lines.exact + lines.carried + lines.rounding;
            self.assert_equal("an invoice's lines", &sum, &(invoice.amount.units() * NANO));
            self.assert_equal("the exact amount of an invoice", &lines.exact, &bill.exact);
            self.assert_equal("the amount that is charged again", &lines.carried, &0);
            self.assert_equal("the carried amount", &invoice.brought_forward.units(), &bill.carried);
            let figures = (invoice.amount.units(), invoice.due.units(), invoice.status.as_str());
            self.assert_equal("an invoice", &figures, &(bill.nano, bill.due, bill.status()));
            let mut noted = 0;
            let theirs = notes.iter().filter(|(note, _)| note.invoice_id == invoice.id);
            for ((note, items), due) in theirs.clone().zip(&bill.notes) {
                let lines = self::lines(items);
                let sum = lines.exact + lines.rounding;
                self.assert_equal("a credit note's lines", &-sum, &(note.amount.units() * NANO));
                self.assert_equal(
                    "a credit note",
                    &(note.amount.units(), -lines.exact),
                    &(due.nano, due.exact),
                );
                charged += lines.exact;
                rounding += lines.rounding;
                documents += 1;
                noted += note.amount.units();
            }
            self.assert_equal("the number of credit notes", &theirs.count(), &bill.notes.len());
            charged += lines.exact;
            rounding += lines.rounding;
            documents += 1;
            // Voiding an invoice refunds the rest of its amount that credit notes haven't refunded.
            let whole = invoice.amount.units() - noted;
            taken += if invoice.status == Status::Void { 0 } else { whole };
        }
        let open = self.books.open_month;
        let billed = self.books.owed_of(&TIERS, |month| month < open);
        self.assert_equal("the sum of all documents", &charged, &(billed.net() - self.books.of_void.net()));
        let rows = i128::try_from(self.books.rows().len()).unwrap();
        if rounding.abs() > (rows + documents) * NANO {
            self.fail(&format!("{rounding} pico are lost to rounding in {rows} rows, {documents} documents"));
        }

        let wallet = tollkeeper::billing::store::wallets::get(&mut tx, id).await.unwrap().unwrap();
        let (deposits, ended): (i64, i64) = sql("SELECT
                (SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM credits
                 WHERE organization_id = $1 AND kind IN ('grant', 'purchase', 'payment')),
                (SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM ledger_entries
                 WHERE organization_id = $2 AND account = 'expired_credits')")
        .bind(id)
        .bind(id)
        .one(&mut tx)
        .await
        .unwrap();
        let not_billed: i128 = (open..=self.books.last_month()).map(|month| self.books.charged(month)).sum();
        let due = i128::from(deposits) - i128::from(ended) - taken - not_billed;
        self.assert_equal("the wallet", &wallet.posted.units(), &due);

        // All debts are on invoices or belong to unbilled months, except for extra cost that a correction
        // causes. That cost is on the next invoice.
        let owed = self.books.left() - wallet.posted.units();
        let unpaid: i128 =
            (open..=self.books.last_month()).map(|month| self.books.unpaid(month).max(0)).sum();
        let waiting = owed - self.books.due() - unpaid;
        let is_dearer = self.books.bills.iter().any(|bill| bill.notes.iter().any(|note| note.nano < 0));
        if waiting != 0 && !is_dearer {
            self.fail(&format!("{owed} are owed, {waiting} of which are on no document"));
        }
    }

    /// Checks that the remaining amount, the payments and the expired part of each credit add up, and that no
    /// unexpected credit exists.
    pub async fn check_credits(&self) {
        let mut tx = self.world.app.db.read().await.unwrap();
        let stored: Vec<(String, i64, i64, i64)> = sql("SELECT c.id, c.amount_nano, c.remaining_nano,
                (SELECT CAST(COALESCE(SUM(u.amount_nano), 0) AS BIGINT) FROM credit_uses u WHERE u.credit_id = c.id)
             FROM credits c WHERE c.organization_id = $1")
        .bind(self.organization_id())
        .all(&mut tx)
        .await
        .unwrap();
        let ends: Vec<(String, i64)> =
            sql("SELECT t.idempotency_key, e.amount_nano FROM ledger_transactions t
             JOIN ledger_entries e ON e.transaction_id = t.id
             WHERE t.organization_id = $1 AND t.kind = 'credit_expiry' AND e.account = 'expired_credits'")
            .bind(self.organization_id())
            .all(&mut tx)
            .await
            .unwrap();
        let mut ended: BTreeMap<String, i128> = BTreeMap::new();
        for (key, amount) in ends {
            *ended.entry(key.split(':').nth(1).unwrap().to_owned()).or_default() += i128::from(amount);
        }
        let mut said = Vec::new();
        for (id, amount, left, used) in stored {
            let [amount, left, used] = [amount, left, used].map(i128::from);
            let ended = ended.get(&id).copied().unwrap_or_default();
            self.assert_equal("the rest of a credit", &left, &(amount - used - ended));
            said.push((id, amount, left, used, ended));
        }
        let lots = self.books.lots.iter();
        let mut due: Vec<_> = lots
            .map(|lot| (lot.id.clone(), lot.amount, lot.left, lot.uses.values().sum::<i128>(), lot.ended))
            .collect();
        said.sort();
        due.sort();
        self.assert_equal("the credits", &said, &due);
    }
}
