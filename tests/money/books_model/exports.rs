//! The exported charges. They are compared with the documents and the model's books: the lines of each
//! document add up to its amount, and the lines of each key to the price of its tokens.

use std::collections::BTreeMap;

use tollkeeper::billing::rules::invoicing::Status;
use tollkeeper::clock::Month;
use tollkeeper::money::Pico;

use super::books::NANO;
use super::history::History;
use support::csv::{self, Row};

fn pico(row: &Row, column: &str) -> i128 {
    Pico::parse(&row[column]).unwrap().units()
}

/// Sums in pico, by document id and by whether the line cancels a void invoice.
type Sums = BTreeMap<(String, bool), i128>;

impl History<'_> {
    /// Checks the exported charges of every month.
    pub async fn check_exports(&self) {
        let now = self.world.clock.now().day().month().unix_months();
        let first = self.organization_id().created_at().day().month().unix_months();
        let (mut by_key, mut sums) = (BTreeMap::new(), Sums::new());
        for month in first..=now + 1 {
            let month = Month::from_unix_months(month);
            let path =
                format!("{}/billing/export?format=focus&month={month}", self.place.organization_path());
            let answer = self.get(usize::try_from(month.unix_months() % 2).unwrap(), &path).await;
            self.assert_equal("the status of an export", &answer.status, &200);
            let (mut pending, mut exact) = (0, 0);
            for row in csv::rows(&answer.text) {
                self.check_charge(&row, month);
                let billed = pico(&row, "BilledCost");
                if row["ChargeCategory"] == "Usage" && !row["ResourceId"].is_empty() {
                    *by_key.entry(row["ResourceId"].clone()).or_insert(0) += billed;
                }
                let is_rounding = row["ChargeDescription"] == "Rounding";
                match row["InvoiceId"].as_str() {
                    "" => {
                        pending += billed;
                        exact += if is_rounding { 0 } else { billed };
                    }
                    id => {
                        let is_void = row["ChargeDescription"].ends_with(" is void");
                        *sums.entry((id.to_owned(), is_void)).or_insert(0) += billed;
                    }
                }
            }
            if month.unix_months() < self.books.open_month {
                self.assert_equal("a closed month without an invoice", &pending, &0);
            } else {
                let due = self.books.bill_of(&super::history::TIERS, month.unix_months()).net();
                self.assert_equal("the charges of an open month", &exact, &due);
                self.assert_equal("what rounding leaves", &(pending % NANO), &0);
            }
        }
        self.check_sums(sums).await;
        for (place, (id, _)) in self.keys.iter().enumerate() {
            let of_key = self.books.events.values().filter(|event| event.key == place);
            let due: i128 = of_key.map(super::books::Event::pico).sum();
            self.assert_equal("the charges of a key", &by_key.remove(id).unwrap_or_default(), &due);
        }
        self.assert_equal("charges of other keys", &by_key, &BTreeMap::new());
    }

    fn check_charge(&self, row: &Row, month: Month) {
        self.assert_equal("a billing period", &row["BillingPeriodStart"][..7].to_owned(), &month.to_string());
        for column in ["ListCost", "ContractedCost", "EffectiveCost"] {
            self.assert_equal("a cost", &row[column], &row["BilledCost"]);
        }
        let is_earlier = row["ChargePeriodStart"] < row["BillingPeriodStart"];
        self.assert_equal("a correction", &(row["ChargeClass"] == "Correction"), &is_earlier);
        if !row["ListUnitPrice"].is_empty() {
            let quantity: i128 = row["PricingQuantity"].strip_suffix(".0").unwrap().parse().unwrap();
            let price = pico(row, "ListUnitPrice");
            self.assert_equal("quantity x price", &(quantity * price), &pico(row, "BilledCost"));
            self.assert_equal("a negative price", &(price < 0), &false);
        }
    }

    /// Checks that the lines of each document add up to its amount, and that every void invoice is canceled.
    async fn check_sums(&self, mut sums: Sums) {
        let mut tx = self.world.app.db.read().await.unwrap();
        let id = self.organization_id();
        let page = tollkeeper::db::Page { page: 1, page_size: 100 };
        let invoices = tollkeeper::billing::store::invoices::list(&mut tx, id, None, page).await.unwrap();
        let (first, last) = (Month::from_unix_months(0), Month::from_unix_months(100_000));
        let notes =
            tollkeeper::billing::store::credit_notes::between(&mut tx, id, first, last).await.unwrap();
        let mut due = Sums::new();
        for invoice in invoices {
            let amount = invoice.amount.units() * NANO;
            due.insert((invoice.id.to_string(), false), amount);
            if invoice.status == Status::Void {
                let of = notes.iter().filter(|(note, _)| note.invoice_id == invoice.id);
                let noted: i128 = of.map(|(note, _)| note.amount.units() * NANO).sum();
                due.insert((invoice.id.to_string(), true), noted - amount);
            }
        }
        due.extend(notes.iter().map(|(note, _)| ((note.id.to_string(), false), -note.amount.units() * NANO)));
        sums.retain(|_, sum| *sum != 0);
        due.retain(|_, sum| *sum != 0);
        self.assert_equal("the sums of documents", &sums, &due);
    }
}
