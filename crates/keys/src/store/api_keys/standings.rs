//! API keys, read in one statement together with a user's standing in the project.

use std::sync::LazyLock;

use db::{FromRow, Row, Statement};
use kernel::ids::ApiKeyId;
use tenants::store::standings::{self, Extra};

use super::{ApiKey, COLUMNS};

fn text(columns: &str, joins: &str) -> String {
    let all = "LEFT JOIN api_keys k ON k.id = $4 AND k.project_id = p.id
         LEFT JOIN users u ON u.id = k.created_by
         LEFT JOIN api_key_last_uses l ON l.api_key_id = k.id";
    standings::text(&format!(", {COLUMNS}{columns}"), &format!("{all} {joins}"))
}

impl Extra for ApiKey {
    type Id = Option<ApiKeyId>;
    fn text() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(|| text("", ""));
        &TEXT
    }
    fn bind(statement: Statement, id: Option<ApiKeyId>) -> Statement {
        statement.bind(id)
    }
    fn read(row: &Row) -> Result<Option<Self>, db::Error> {
        let id: Option<String> = row.get("id")?;
        id.map(|_| Self::from_row(row)).transpose()
    }
}

/// A key and the sealed copy of its current secret, which is never shown.
#[derive(Clone)]
pub struct ApiKeyAndSecret {
    pub key: ApiKey,
    /// The sealed secret, if a copy was kept.
    pub sealed: Option<Vec<u8>>,
    /// The SHA-256 of the current secret.
    pub secret_hash: Vec<u8>,
}

impl Extra for ApiKeyAndSecret {
    type Id = Option<ApiKeyId>;
    fn text() -> &'static str {
        static TEXT: LazyLock<String> = LazyLock::new(|| {
            let secret = "LEFT JOIN api_key_secrets s ON s.api_key_id = k.id AND s.ends_at IS NULL";
            text(", s.sealed_secret, s.secret_hash", secret)
        });
        &TEXT
    }
    fn bind(statement: Statement, id: Option<ApiKeyId>) -> Statement {
        statement.bind(id)
    }
    fn read(row: &Row) -> Result<Option<Self>, db::Error> {
        let Some(key) = ApiKey::read(row)? else { return Ok(None) };
        let hash: Option<Vec<u8>> = row.get("secret_hash")?;
        Ok(Some(Self { key, sealed: row.get("sealed_secret")?, secret_hash: hash.unwrap_or_default() }))
    }
}
