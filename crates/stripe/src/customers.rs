//! Customers.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::{Form, Query};
use crate::values::{Expandable, IdempotencyKey, Identified, Metadata, metadata};

/// A customer.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Customer {
    pub id: String,
    /// Whether it was deleted at Stripe. Then it has only an id.
    #[serde(default)]
    pub deleted: bool,
    #[serde(default)]
    pub livemode: bool,
    pub email: Option<String>,
    pub name: Option<String>,
    pub address: Option<Address>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

/// A postal address.
#[derive(Clone, Default, PartialEq, Eq, Debug, Deserialize)]
pub struct Address {
    pub city: Option<String>,
    /// Two-letter country code (ISO 3166-1).
    pub country: Option<String>,
    pub line1: Option<String>,
    pub line2: Option<String>,
    pub postal_code: Option<String>,
    pub state: Option<String>,
}

impl Identified for Customer {
    fn id(&self) -> &str {
        &self.id
    }
}

/// A reference to a customer.
pub(crate) type CustomerRef = Expandable<Customer>;

/// A customer to create.
#[derive(Clone, Default, Debug)]
pub struct NewCustomer<'a> {
    pub name: Option<&'a str>,
    pub email: Option<&'a str>,
    pub metadata: Metadata,
}

impl Client {
    pub async fn create_customer(
        &self,
        new: &NewCustomer<'_>,
        key: &IdempotencyKey,
    ) -> Result<Customer, Error> {
        let mut form = Form::new();
        form.optional("name", new.name);
        form.optional("email", new.email);
        form.metadata("metadata", &new.metadata);
        self.post("customers", form, key).await
    }

    /// Sets the address of a customer.
    pub async fn set_customer_address(
        &self,
        id: &str,
        address: &Address,
        key: &IdempotencyKey,
    ) -> Result<Customer, Error> {
        let mut form = Form::new();
        for (name, value) in [
            ("city", &address.city),
            ("country", &address.country),
            ("line1", &address.line1),
            ("line2", &address.line2),
            ("postal_code", &address.postal_code),
            ("state", &address.state),
        ] {
            form.optional(&format!("address[{name}]"), value.as_deref());
        }
        self.post(&path("customers", id)?, form, key).await
    }

    pub async fn customer(&self, id: &str) -> Result<Customer, Error> {
        self.get(&path("customers", id)?, &Query::new()).await
    }
}
