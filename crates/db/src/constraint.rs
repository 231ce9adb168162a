//! The unique constraints that decide races, by the name that each database gives them.

/// A unique constraint that decides a race; its name maps to the caller's error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// One account an e-mail address.
    UserEmail,
    /// One account a username.
    UserUsername,
    /// One organization a name, among those with the same creator.
    OrganizationName,
    /// One open invitation an address, within its organization.
    OpenInvitation,
    /// One project a name, within its organization.
    ProjectName,
    /// One API key a name, within its project.
    ApiKeyName,
    /// One movement of money a key, within its organization.
    LedgerKey,
    /// One credit a reference, within its organization.
    CreditReference,
    /// One that no caller can meet by a well-formed request; the driver's words.
    Other(String),
}

/// What a row refers to that is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reference {
    /// An organization.
    Organization,
    /// A project.
    Project,
    /// One that nobody can remove beside us; the driver's words.
    Other(String),
}

impl Reference {
    /// From the name that PostgreSQL gives a foreign key: table, column, `fkey`. SQLite has one writer at a time, and who
    /// writes has looked in the same transaction.
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

/// PostgreSQL reports the index, SQLite its columns.
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
        "ledger_transactions_organization_id_idempotency_key",
        "ledger_transactions.organization_id, ledger_transactions.idempotency_key",
        Constraint::LedgerKey,
    ),
    (
        "credits_organization_id_reference",
        "credits.organization_id, credits.reference",
        Constraint::CreditReference,
    ),
];

impl Constraint {
    /// From the name of the index, as PostgreSQL reports it.
    pub(super) fn from_index(index: &str) -> Self {
        let row = NAMES.iter().find(|(name, _, _)| *name == index);
        row.map_or_else(|| Self::Other(index.to_owned()), |(_, _, constraint)| constraint.clone())
    }

    /// From SQLite's message, `UNIQUE constraint failed: table.column, table.column`.
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
    fn both_spellings_mean_the_same_constraint() {
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
