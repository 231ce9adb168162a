//! Tax calculations, for payments that aren't made on Stripe's pages.

use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::form::Form;
use crate::values::IdempotencyKey;

/// A tax calculation, valid for 90 days and a single payment.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Calculation {
    /// The id that a payment refers to.
    pub id: Option<String>,
    /// The amount including tax, in the minor unit.
    pub amount_total: i64,
    /// The tax added to the amount, in the minor unit.
    pub tax_amount_exclusive: i64,
    /// The currency, in lower case.
    pub currency: String,
    pub livemode: bool,
}

/// A tax calculation for one item that a customer buys.
#[derive(Clone, Debug)]
pub struct NewCalculation<'a> {
    /// The customer, whose address and tax ids determine the tax.
    pub customer: &'a str,
    pub currency: &'a str,
    /// The amount before tax, in the minor unit.
    pub amount: i64,
    /// The caller's reference for the item.
    pub reference: &'a str,
    /// Stripe's tax code of the product; `None` means the account's default.
    pub tax_code: Option<&'a str>,
}

impl Client {
    /// Calculates the tax on an amount.
    ///
    /// # Errors
    /// [`Error::Refused`] with `customer_tax_location_invalid` if Stripe can't use the customer's
    /// address.
    pub async fn calculate_tax(
        &self,
        new: &NewCalculation<'_>,
        key: &IdempotencyKey,
    ) -> Result<Calculation, Error> {
        let mut form = Form::new();
        form.currency("currency", new.currency);
        form.text("customer", new.customer);
        form.number("line_items[0][amount]", new.amount);
        form.text("line_items[0][reference]", new.reference);
        form.text("line_items[0][tax_behavior]", "exclusive");
        form.optional("line_items[0][tax_code]", new.tax_code);
        self.post("tax/calculations", form, key).await
    }
}
