//! Taxes: calculations, and the tax fields of sessions and invoices.

use serde_json::{Value, json};

use super::params::Params;
use super::problem::Problem;
use super::state::State;

/// The time for which a calculation can be used, in seconds.
const EXPIRES_SECONDS: i64 = 90 * 24 * 3_600;

/// Returns the address that all customers enter.
pub fn address() -> Value {
    json!({
        "city": "Berlin", "country": "DE", "line1": "Unter den Linden 1", "line2": null, "postal_code": "10117",
        "state": null,
    })
}

impl State {
    /// Returns the tax on an amount, rounded half up.
    pub fn tax_on(&self, amount: i64) -> i64 {
        (amount * self.tax_ppm + 500_000) / 1_000_000
    }

    /// Returns `true` if the tax for a customer can be computed.
    pub fn has_address(&self, customer: &str) -> bool {
        self.get(customer).get("address").is_some_and(|address| !address.is_null())
    }

    /// Sets the address of a customer, as if the customer had entered it.
    pub fn give_address(&mut self, customer: &str) {
        self.edit(customer, |customer| customer["address"] = address());
        self.emit("customer.updated", customer);
    }

    /// Sets the tax of a session, or marks it as unknown if the customer has no address.
    pub fn put_session_tax(&self, session: &mut Value) {
        let customer = session["customer"].as_str().unwrap();
        let subtotal = session["amount_subtotal"].as_i64().unwrap();
        let is_taxed = session["automatic_tax"]["enabled"] == true;
        let is_known = is_taxed && self.has_address(customer);
        let tax = if is_known { self.tax_on(subtotal) } else { 0 };
        if is_taxed {
            session["automatic_tax"]["status"] =
                if is_known { "complete" } else { "requires_location_inputs" }.into();
        }
        session["amount_total"] = (subtotal + tax).into();
        session["total_details"] = json!({"amount_discount": 0, "amount_shipping": 0, "amount_tax": tax});
    }

    pub fn create_calculation(&mut self, params: &Params) -> Result<Value, Problem> {
        let currency = params.required("currency")?.to_lowercase();
        let customer = params.required("customer")?.to_owned();
        let item = |name: &str| format!("line_items[0][{name}]");
        let amount = params.number(&item("amount"))?;
        let missing = || Problem::invalid("line_items[0][amount]", "parameter_missing", "Missing amount");
        let amount = amount.filter(|amount| *amount > 0).ok_or_else(missing)?;
        params.text(&item("reference"));
        params.text(&item("tax_code"));
        let behavior = params.word(&item("tax_behavior"), &["exclusive", "inclusive"])?;
        let is_inclusive = behavior == Some("inclusive");
        params.list("expand");
        params.finish()?;
        self.customer(&customer, Some("customer"))?;
        if is_inclusive {
            return Err(Problem::invalid("tax_behavior", "", "this server adds taxes only"));
        }
        if !self.has_address(&customer) {
            let why =
                "We could not determine the customer's tax location based on the provided customer address.";
            return Err(Problem::invalid("customer_details[address]", "customer_tax_location_invalid", why));
        }
        let tax = self.tax_on(amount);
        let id = self.new_id("taxcalc");
        let percent = format!("{}.{:04}", self.tax_ppm / 10_000, self.tax_ppm % 10_000);
        let address = self.get(&customer)["address"].clone();
        let details = json!({
            "address": address, "address_source": "billing", "ip_address": null, "tax_ids": [],
            "taxability_override": "none",
        });
        let rate = json!({
            "country": "DE", "flat_amount": null, "percentage_decimal": percent, "rate_type": "percentage",
            "state": null, "tax_type": "vat",
        });
        let breakdown = json!({
            "amount": tax, "inclusive": false, "tax_rate_details": rate, "taxability_reason": "standard_rated",
            "taxable_amount": amount,
        });
        let calculation = json!({
            "id": id, "object": "tax.calculation", "amount_total": amount + tax, "currency": currency,
            "customer": customer, "customer_details": details, "expires_at": self.now() + EXPIRES_SECONDS,
            "livemode": self.livemode, "ship_from_details": null, "shipping_cost": null,
            "tax_amount_exclusive": tax, "tax_amount_inclusive": 0, "tax_breakdown": [breakdown],
            "tax_date": self.now(),
        });
        self.put(calculation);
        Ok(self.get(&id).clone())
    }

    /// Returns a calculation that hasn't expired.
    pub fn calculation(&self, id: &str) -> Result<&Value, Problem> {
        let param = "hooks[inputs][tax][calculation]";
        let found = self.find("tax.calculation", id, Some(param))?;
        match found["expires_at"].as_i64() {
            Some(at) if at > self.now() => Ok(found),
            _ => Err(Problem::invalid(param, "", "This tax calculation has expired.")),
        }
    }

    /// Records the calculated tax of a succeeded payment, unless it is already recorded.
    pub fn record_tax(&mut self, intent: &str) {
        let calculation =
            self.get(intent)["hooks"]["inputs"]["tax"]["calculation"].as_str().map(str::to_owned);
        if let Some(calculation) = calculation {
            self.recorded_taxes.entry(calculation).or_insert_with(|| intent.to_owned());
        }
    }

    /// Adds the invoice of a paid session, and returns the id of the invoice.
    pub fn add_invoice(&mut self, session: &Value) -> String {
        let mut invoice = self.template("invoice");
        let id = self.new_id("in");
        let (total, subtotal) = (&session["amount_total"], &session["amount_subtotal"]);
        invoice["id"] = id.clone().into();
        for name in ["amount_due", "amount_paid", "total"] {
            invoice[name] = total.clone();
        }
        for name in ["subtotal", "subtotal_excluding_tax", "total_excluding_tax"] {
            invoice[name] = subtotal.clone();
        }
        for name in ["currency", "customer"] {
            invoice[name] = session[name].clone();
        }
        invoice["metadata"] = session["invoice_creation"]["invoice_data"]["metadata"].clone();
        let now: Value = self.now().into();
        for name in ["effective_at", "period_end", "period_start"] {
            invoice[name] = now.clone();
        }
        invoice["status_transitions"]["finalized_at"] = now.clone();
        invoice["status_transitions"]["paid_at"] = now;
        invoice["lines"]["url"] = format!("/v1/invoices/{id}/lines").into();
        invoice["hosted_invoice_url"] = format!("{}/invoices/{id}", self.url).into();
        invoice["invoice_pdf"] = format!("{}/invoices/{id}/pdf", self.url).into();
        self.put(invoice);
        id
    }
}
