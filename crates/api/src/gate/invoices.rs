//! Access to one invoice of an organization.

use crate::Api;
use kernel::error::Error;
use kernel::ids::{InvoiceId, OrganizationId};
use tenants::access::{FoundOrganization, OrgScope};
use tenants::roles::OrganizationAction;

use billing::invoices::{self, Invoice};

use super::bearer::authenticate_manager;
use super::tenants::{organization_doc, organization_id};
use super::{Access, AccessDoc, Call, trail};

/// The access to an organization's invoice in the path, for this action.
#[derive(Clone, Copy, Debug)]
pub struct OrgInvoice(pub OrganizationAction);

/// The right to read an invoice.
#[derive(Clone, Debug)]
pub struct InvoiceScope {
    organization: OrgScope,
    invoice: Invoice,
}

impl InvoiceScope {
    /// Returns the right to the action on the invoice's organization.
    pub fn organization(&self) -> &OrgScope {
        &self.organization
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.invoice.organization_id
    }
    pub fn invoice(&self) -> &Invoice {
        &self.invoice
    }
}

impl Access<Api> for OrgInvoice {
    type Scope = InvoiceScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<InvoiceScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let organization_id = organization_id(call)?;
        let found = FoundOrganization::find(&api.tenants, organization_id, caller).await?;
        let invoice_id = InvoiceId::parse(call.path("invoice_id"));
        let invoice = invoices::find(&api.billing, organization_id, invoice_id).await?;
        Ok(InvoiceScope { organization: found.admit(self.0, trail(call))?, invoice })
    }
    fn describe(&self) -> AccessDoc {
        organization_doc(self.0, format!("organization: {:?}", self.0))
    }
}
