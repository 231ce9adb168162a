//! Pagination and filters of lists (docs/contract/README.md#lists).

use schemars::JsonSchema;
use serde::Serialize;

use crate::Api;
use input::fields::{Field, Fields, Record};
use input::types::{Integer, Text};
use kernel::naming;
use kernel::page::Page;
use keys::api_keys::StatusFilter;
use tenants::Search;
use tenants::roles::{OrganizationRole, ProjectRole};

/// The query parameters of a list without filters.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery(pub Page);

impl Record<Api> for PageQuery {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page =
            fields.described("The number of the page, from 1.").or("page", Integer::<1, 1_000_000_000>(1));
        let page_size = fields
            .described("The number of rows per page; 20 by default.")
            .or("page_size", Integer::<1, 100>(20));
        Some(Self(Page { page: page?.0, page_size: page_size?.0 }))
    }
}

/// The last fields of each reply with a page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageInfo {
    /// The number of items on all pages.
    total: i64,
    /// The number of the page, from 1.
    page: i64,
    /// The number of items per page; 20 by default.
    page_size: i64,
}

impl PageInfo {
    pub fn new(total: i64, Page { page, page_size }: Page) -> Self {
        Self { total, page, page_size }
    }
}

/// The query parameters of a list; `F` is the type of its filter.
#[derive(Clone, Debug)]
pub struct ListQuery<F> {
    pub page: Page,
    /// The folded search text; empty without a search.
    pub search_folded: String,
    /// Only items with this value.
    pub filter: Option<F>,
}

impl<R> From<ListQuery<R>> for Search<R> {
    fn from(query: ListQuery<R>) -> Self {
        Self { page: query.page, folded: query.search_folded, role: query.filter }
    }
}

/// A filter of lists.
pub trait ListFilter: Field + Send + 'static {
    /// The name of the query parameter.
    const NAME: &'static str;
    /// The description of the query parameter.
    const DESCRIPTION: &'static str;
}

impl<F: ListFilter> Record<Api> for ListQuery<F> {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let page = PageQuery::read(fields);
        let search = fields
            .described("A part of the name, or of an e-mail address or username; case-insensitive.")
            .optional::<Text<200>>("search");
        let filter = fields.described(F::DESCRIPTION).optional::<F>(F::NAME);
        Some(Self {
            page: page?.0,
            search_folded: search?.map(|text| naming::fold(text.0.trim())).unwrap_or_default(),
            filter: filter?,
        })
    }
}

impl ListFilter for OrganizationRole {
    const NAME: &'static str = "role";
    const DESCRIPTION: &'static str = "The role.";
}

impl ListFilter for ProjectRole {
    const NAME: &'static str = "role";
    const DESCRIPTION: &'static str = "The role.";
}

impl ListFilter for StatusFilter {
    const NAME: &'static str = "status";
    const DESCRIPTION: &'static str = "The state.";
}
