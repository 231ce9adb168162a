//! Access to one invoice of an organization.

use crate::app::App;
use kernel::error::{Code, Error};
use kernel::ids::{InvoiceId, OrganizationId};
use tenants::access::FoundOrganization;
use tenants::roles::OrganizationAction;

use billing::store::invoices::Invoice;

use super::bearer::manager;
use super::tenants::organization_id;
use super::{Access, AccessDoc, Call};

/// An action on the invoice in the path.
#[derive(Clone, Copy, Debug)]
pub struct OrgInvoice(pub OrganizationAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct InvoiceScope {
    invoice: Invoice,
}

impl InvoiceScope {
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.invoice.organization_id
    }
    /// The invoice.
    pub fn invoice(&self) -> &Invoice {
        &self.invoice
    }
}

impl Access for OrgInvoice {
    type Scope = InvoiceScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<InvoiceScope, Error> {
        let caller = manager(app, call).await?;
        let organization_id = organization_id(call)?;
        let found = FoundOrganization::find(&app.tenants, organization_id, caller).await?;
        let mut tx = app.db.read().await?;
        let invoice_id = InvoiceId::parse(call.path("invoice_id")).ok_or(Code::InvoiceNotFound)?;
        let invoice = billing::store::invoices::get(&mut tx, invoice_id).await?;
        let invoice = invoice.filter(|invoice| invoice.organization_id == organization_id);
        let invoice = invoice.ok_or(Code::InvoiceNotFound)?;
        found.admit(self.0, call.trail())?;
        Ok(InvoiceScope { invoice })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("organization: {:?}", self.0))
    }
}
