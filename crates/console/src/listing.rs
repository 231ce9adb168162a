//! A page of a list, with links to the others.

use kernel::page::Page;

/// A page of a list, with links to the others. The links keep the filters.
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

    /// Returns `true` if the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns `true` if the list is filtered.
    pub fn is_filtered(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Returns the number of entries on all pages.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// Returns the number of this page, from 1.
    pub fn number(&self) -> i64 {
        self.page.page
    }

    /// Returns the number of the last page.
    pub fn last(&self) -> i64 {
        let before = self.total.saturating_sub(1).max(0);
        before.checked_div(self.page.page_size).unwrap_or(0).saturating_add(1)
    }

    /// Returns the link to another page of the list.
    pub fn link(&self, number: impl std::fmt::Display) -> String {
        format!("?page={number}{}", self.filters)
    }

    /// Returns the number of the page before this one.
    pub fn previous(&self) -> Option<i64> {
        (self.number() > 1).then(|| self.number().saturating_sub(1).min(self.last()))
    }

    /// Returns the number of the page after this one.
    pub fn next(&self) -> Option<i64> {
        (self.number() < self.last()).then(|| self.number().saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_the_filters() {
        let sent = [("search", "a&b"), ("page", "2"), ("role", ""), ("done", "signed_out")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let listing = Listing::new(Page { page: 2, page_size: 20 }, 41, &sent);
        assert_eq!(listing.link(3), "?page=3&search=a%26b");
        assert_eq!((listing.previous(), listing.next(), listing.last()), (Some(1), Some(3), 3));
        assert!(listing.is_filtered() && !listing.is_empty());
    }

    #[test]
    fn first_and_last_page_have_an_end() {
        for (page, total, expected) in [
            (1, 0, (None, None, 1)),
            (1, 20, (None, None, 1)),
            (1, 21, (None, Some(2), 2)),
            (2, 21, (Some(1), None, 2)),
            // After the last page, the link goes back to the last page.
            (9, 21, (Some(2), None, 2)),
        ] {
            let listing = Listing::new(Page { page, page_size: 20 }, total, &[]);
            assert_eq!((listing.previous(), listing.next(), listing.last()), expected, "{page} of {total}");
        }
    }
}
