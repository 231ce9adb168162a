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
    /// Whether it was deleted at Stripe: then it has nothing but its id.
    #[serde(default)]
    pub deleted: bool,
    #[serde(default)]
    pub livemode: bool,
    pub email: Option<String>,
    pub name: Option<String>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

impl Identified for Customer {
    fn id(&self) -> &str {
        &self.id
    }
}

/// A reference to a customer.
pub(crate) type CustomerRef = Expandable<Customer>;

/// A customer to be made.
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

    pub async fn customer(&self, id: &str) -> Result<Customer, Error> {
        self.get(&path("customers", id)?, &Query::new()).await
    }
}
