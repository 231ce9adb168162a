//! One page of a list, with links to the others.

use kernel::page::Page;

/// One page of a list, with links to the others. The links keep the filters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    page: Page,
    total: i64,
    /// The filters as a query string.
    filters: String,
}

impl Listing {
    /// Returns a page of a list with these filters, as they were sent.
    pub fn new(page: Page, total: i64, sent: &[(String, String)]) -> Self {
        let kept = sent
            .iter()
            .filter(|(name, value)| !matches!(name.as_str(), "page" | "done") && !value.is_empty());
        let filters = kept.map(|(name, value)| {
            let [name, value] = [name, value].map(|text| crate::links::query_value(text));
            format!("&{name}={value}")
        });
        Self { page, total, filters: filters.collect() }
    }

    /// `true` if there is nothing on any page.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// `true` if the list is filtered.
    pub fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// The number of entries on all pages.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The number of this page, from 1.
    pub fn number(&self) -> i64 {
        self.page.page
    }

    /// The number of the last page.
    pub fn last(&self) -> i64 {
        let before = self.total.saturating_sub(1).max(0);
        before.checked_div(self.page.page_size).unwrap_or(0).saturating_add(1)
    }

    /// The link to another page of the list.
    pub fn link(&self, number: impl std::fmt::Display) -> String {
        format!("?page={number}{}", self.filters)
    }

    /// The number of the page before this one.
    pub fn previous(&self) -> Option<i64> {
        (self.number() > 1).then(|| self.number().saturating_sub(1).min(self.last()))
    }

    /// The number of the page after this one.
    pub fn next(&self) -> Option<i64> {
        (self.number() < self.last()).then(|| self.number().saturating_add(1))
    }
}
