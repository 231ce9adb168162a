//! Customers and their payment methods.

use serde_json::{Map, Value, json};

use super::cards::Card;
use super::params::Params;
use super::problem::Problem;
use super::state::State;

impl State {
    pub fn create_customer(&mut self, params: &Params) -> Result<Value, Problem> {
        let mut customer = self.template("customer");
        for name in ["name", "email", "description", "phone"] {
            if let Some(value) = params.text(name) {
                customer[name] = value.into();
            }
        }
        if customer["email"].as_str().is_some_and(|email| !email.contains('@')) {
            return Err(Problem::invalid("email", "email_invalid", "Invalid email address"));
        }
        customer["metadata"] = params.metadata("metadata")?;
        params.finish()?;
        let id = self.new_id("cus");
        customer["id"] = id.clone().into();
        self.put(customer);
        self.emit("customer.created", &id);
        Ok(self.get(&id).clone())
    }

    /// Sets the address of a customer.
    pub fn update_customer(&mut self, id: &str, params: &Params) -> Result<Value, Problem> {
        let mut address = Map::new();
        for name in ["city", "country", "line1", "line2", "postal_code", "state"] {
            address.insert(name.to_owned(), params.text(&format!("address[{name}]")).into());
        }
        params.finish()?;
        self.customer(id, None)?;
        self.edit(id, |customer| customer["address"] = Value::Object(address));
        self.emit("customer.updated", id);
        Ok(self.get(id).clone())
    }

    pub fn delete_customer(&mut self, id: &str) -> Result<Value, Problem> {
        self.customer(id, None)?;
        let methods: Vec<_> = self.methods_of(id).iter().map(|method| method["id"].clone()).collect();
        for method in methods {
            self.detach(method.as_str().unwrap())?;
        }
        self.put(json!({"id": id, "object": "customer", "deleted": true, "created": self.now()}));
        Ok(json!({"id": id, "object": "customer", "deleted": true}))
    }

    /// Returns a customer, unless the customer is deleted.
    pub fn customer(&self, id: &str, param: Option<&str>) -> Result<&Value, Problem> {
        let customer = self.find("customer", id, param)?;
        match customer.get("deleted") {
            Some(_) => Err(Problem::missing("customer", id, param)),
            None => Ok(customer),
        }
    }

    fn methods_of(&self, customer: &str) -> Vec<&Value> {
        self.all("payment_method").into_iter().filter(|method| method["customer"] == customer).collect()
    }

    pub fn payment_methods(&self, customer: &str, params: &Params) -> Result<Value, Problem> {
        self.customer(customer, None)?;
        let kind = params.text("type").map(str::to_owned);
        let url = format!("/v1/customers/{customer}/payment_methods");
        self.page("payment_method", &url, params, |method| {
            method["customer"] == customer && kind.as_ref().is_none_or(|kind| method["type"] == **kind)
        })
    }

    /// Adds a payment method for a card, and returns its id. A saved card belongs to a customer.
    pub fn add_payment_method(&mut self, card: &Card, customer: Option<&str>) -> String {
        let mut method = self.template("payment_method");
        let id = self.new_id("pm");
        method["id"] = id.clone().into();
        let mut described = self.template("card");
        card.describe(&mut described);
        described["display_brand"] = card.brand.into();
        described["fingerprint"] = format!("print{}", card.last4).into();
        described["networks"] = json!({"available": [card.brand], "preferred": null});
        described["three_d_secure_usage"] = json!({"supported": true});
        method["card"] = described;
        method["customer"] = customer.into();
        if customer.is_some() {
            method["allow_redisplay"] = "limited".into();
        }
        self.put(method);
        self.cards.insert(id.clone(), card.clone());
        if customer.is_some() {
            self.emit("payment_method.attached", &id);
        }
        id
    }

    /// Detaches a payment method from its customer.
    pub fn detach(&mut self, id: &str) -> Result<Value, Problem> {
        let method = self.find("payment_method", id, None)?;
        if method["customer"].is_null() {
            let why =
                "The payment method you provided is not attached to a customer so detachment is impossible.";
            return Err(Problem::state("", why));
        }
        self.edit(id, |method| method["customer"] = Value::Null);
        self.emit("payment_method.detached", id);
        Ok(self.get(id).clone())
    }
}
