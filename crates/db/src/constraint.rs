//! Violated constraints, by their names in the databases.

/// A unique constraint. Each maps to an error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// An e-mail address has at most one account.
    UserEmail,
    /// A username has at most one account.
    UserUsername,
    /// A name has at most one organization among those of the same creator.
    OrganizationName,
    /// An address has at most one open invitation within an organization.
    OpenInvitation,
    /// A name has at most one project within an organization.
    ProjectName,
    /// A name has at most one API key within a project.
    ApiKeyName,
    /// A name has at most one budget within an organization.
    BudgetName,
    /// An idempotency key has at most one ledger transaction within an organization.
    LedgerKey,
    /// A reference has at most one credit within an organization.
    CreditReference,
    /// A caller's idempotency key creates at most one payment.
    PaymentRequest,
    /// A constraint that no valid request violates, by its name in the driver's error.
    Other(String),
}

/// The missing target of a foreign key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reference {
    Organization,
    Project,
    /// A target that no concurrent request removes, by the constraint's name in the driver's error.
    Other(String),
}

impl Reference {
    /// Parses PostgreSQL's name of a foreign key: table, column, `fkey`. On SQLite, which has one writer at a
    /// time, the target can't disappear between its lookup and the write.
    pub(super) fn from_foreign_key(name: &str) -> Self {
        if name.ends_with("_organization_id_fkey") {
            Self::Organization
        } else if name.ends_with("_project_id_fkey") {
            Self::Project
        } else {
            Self::Other(name.to_owned())
        }
    }
}

/// The constraints, each with the index that PostgreSQL reports and the columns that SQLite reports.
const NAMES: &[(&str, &str, Constraint)] = &[
    ("users_email_folded", "users.email_folded", Constraint::UserEmail),
    ("users_username_folded", "users.username_folded", Constraint::UserUsername),
    (
        "organizations_created_by_name_folded",
        "organizations.created_by, organizations.name_folded",
        Constraint::OrganizationName,
    ),
    ("invitations_open", "invitations.organization_id, invitations.email_folded", Constraint::OpenInvitation),
    (
        "projects_organization_id_name_folded",
        "projects.organization_id, projects.name_folded",
        Constraint::ProjectName,
    ),
    ("api_keys_project_id_name_folded", "api_keys.project_id, api_keys.name_folded", Constraint::ApiKeyName),
    (
        "budgets_organization_id_name_folded",
        "budgets.organization_id, budgets.name_folded",
        Constraint::BudgetName,
    ),
    (
        "ledger_transactions_organization_id_idempotency_key",
        "ledger_transactions.organization_id, ledger_transactions.idempotency_key",
        Constraint::LedgerKey,
    ),
    (
        "credits_organization_id_reference",
        "credits.organization_id, credits.reference",
        Constraint::CreditReference,
    ),
    ("payments_request_key", "payments.request_key", Constraint::PaymentRequest),
];

impl Constraint {
    /// Parses the name of the index, which PostgreSQL reports.
    pub(super) fn from_index(index: &str) -> Self {
        let row = NAMES.iter().find(|(name, _, _)| *name == index);
        row.map_or_else(|| Self::Other(index.to_owned()), |(_, _, constraint)| constraint.clone())
    }

    /// Parses SQLite's message, `UNIQUE constraint failed: table.column, table.column`.
    pub(super) fn from_sqlite(message: &str) -> Self {
        let columns = message.strip_prefix("UNIQUE constraint failed: ").unwrap_or(message);
        let row = NAMES.iter().find(|(_, names, _)| *names == columns);
        row.map_or_else(|| Self::Other(columns.to_owned()), |(_, _, constraint)| constraint.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_are_found_by_index_and_by_columns() {
        for (index, columns, constraint) in NAMES {
            assert_eq!(Constraint::from_index(index), *constraint);
            assert_eq!(Constraint::from_sqlite(&format!("UNIQUE constraint failed: {columns}")), *constraint);
        }
        assert_eq!(Constraint::from_index("users_pkey"), Constraint::Other("users_pkey".to_owned()));
        assert_eq!(
            Constraint::from_sqlite("UNIQUE constraint failed: users.id"),
            Constraint::Other("users.id".to_owned())
        );
    }
}
