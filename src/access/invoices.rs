//! Access to one invoice of an organization.

use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::{InvoiceId, OrganizationId};
use crate::roles::OrganizationAction;
use crate::store;
use crate::store::invoices::Invoice;

use super::{Access, AccessDoc, Call, manager};

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
        let organization_id =
            OrganizationId::parse(call.path("organization_id")).ok_or(Code::OrganizationNotFound)?;
        let mut tx = app.db.read().await?;
        let role = store::organization_members::role(&mut tx, organization_id, caller.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        let invoice_id = InvoiceId::parse(call.path("invoice_id")).ok_or(Code::InvoiceNotFound)?;
        let invoice = store::invoices::get(&mut tx, invoice_id).await?;
        let invoice = invoice.filter(|invoice| invoice.organization_id == organization_id);
        let invoice = invoice.ok_or(Code::InvoiceNotFound)?;
        caller.confine(organization_id, None)?;
        caller.may_manage(app, call)?;
        let role = caller.organization_role(&mut tx, organization_id, role).await?;
        role.filter(|role| role.allows(self.0)).ok_or(Code::InsufficientRole)?;
        Ok(InvoiceScope { invoice })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("organization: {:?}", self.0))
    }
}
