//! Pagination and filters of lists (docs/contract/README.md#lists).

use crate::input::fields::{At, Field, Fields, Problems, Record};
use crate::input::json::Json;
use crate::input::types::{Integer, Text, one_of};
use crate::roles::{OrganizationRole, ProjectRole};
use crate::store::api_keys::StatusFilter;
use crate::tenants::Search;
use db::Page;
use kernel::naming;

/// The query parameters of a list whose items have a filter of type `F` called by its name.
#[derive(Clone, Debug)]
pub struct ListQuery<F> {
    /// Which page.
    pub page: Page,
    /// Folded; empty: all.
    pub search_folded: String,
    /// Only such items.
    pub filter: Option<F>,
}

impl<R> From<ListQuery<R>> for Search<R> {
    fn from(query: ListQuery<R>) -> Self {
        Self { page: query.page, folded: query.search_folded, role: query.filter }
    }
}

/// A filter that lists can have.
pub trait ListFilter: Field + Send + 'static {
    /// The query parameter's name.
    const NAME: &'static str;
}

impl<F: ListFilter> Record for ListQuery<F> {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let page = fields.or("page", Integer::<1, 1_000_000_000>(1));
        let page_size = fields.or("page_size", Integer::<1, 100>(20));
        let search = fields.optional::<Text<200>>("search");
        let filter = fields.optional::<F>(F::NAME);
        Some(Self {
            page: Page { page: page?.0, page_size: page_size?.0 },
            search_folded: search?.map(|text| naming::fold(text.0.trim())).unwrap_or_default(),
            filter: filter?,
        })
    }
}

impl Field for OrganizationRole {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Owner, Self::Admin, Self::Member], Self::as_str)
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "enum": ["owner", "admin", "member"], "examples": ["member"]})
    }
}

impl ListFilter for OrganizationRole {
    const NAME: &'static str = "role";
}

impl Field for ProjectRole {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Owner, Self::Admin, Self::Developer, Self::Viewer], Self::as_str)
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "enum": ["owner", "admin", "developer", "viewer"], "examples": ["viewer"]})
    }
}

impl ListFilter for ProjectRole {
    const NAME: &'static str = "role";
}

impl StatusFilter {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
        }
    }
}

impl Field for StatusFilter {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Active, Self::Expired], Self::as_str)
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "enum": ["active", "expired"], "examples": ["active"]})
    }
}

impl ListFilter for StatusFilter {
    const NAME: &'static str = "status";
}
