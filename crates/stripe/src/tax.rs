//! Tax calculations: the tax on a payment that isn't made on a page of Stripe.

use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::form::Form;
use crate::values::IdempotencyKey;

/// A tax calculation. It is good for 90 days, and for one payment.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Calculation {
    /// Its id, by which a payment refers to it.
    pub id: Option<String>,
    /// The amount with the tax, in the minor unit.
    pub amount_total: i64,
    /// The tax that is added to the amount, in the minor unit.
    pub tax_amount_exclusive: i64,
    /// The currency, in lower case.
    pub currency: String,
    pub livemode: bool,
}

/// The tax to be calculated on one thing that a customer buys.
#[derive(Clone, Debug)]
pub struct NewCalculation<'a> {
    /// The customer, whose address and tax ids decide.
    pub customer: &'a str,
    pub currency: &'a str,
    /// The amount before taxes, in the minor unit.
    pub amount: i64,
    /// What is bought, as the caller calls it.
    pub reference: &'a str,
    /// The tax code of the product at Stripe; its account has a default.
    pub tax_code: Option<&'a str>,
}

impl Client {
    /// Calculates the tax on an amount.
    ///
    /// # Errors
    /// A customer without an address that Stripe can use is [`Error::Refused`] with `customer_tax_location_invalid`.
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
