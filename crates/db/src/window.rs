//! The rows of a page in a long list of known length.

use crate::Page;

/// A range of rows. It is counted from the nearer end of the list, because the database must skip all rows
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// `true` if counted from the end of the list, with the rows in the opposite order.
    pub from_end: bool,
    /// Rows to skip.
    pub offset: i64,
    /// Rows in the range.
    pub limit: i64,
}

impl Window {
    /// Returns the rows of a page in a list of `total` rows; `None` if the page is past the end.
    pub fn of(page: Page, total: i64) -> Option<Self> {
        let before = page.offset();
        let limit = page.page_size.min(total.saturating_sub(before));
        if limit <= 0 {
            return None;
        }
        let after = total.saturating_sub(before).saturating_sub(limit);
        Some(Self { from_end: after < before, offset: before.min(after), limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_from_the_nearer_end() {
        let cases = [
            // page, size, total: from_end, offset, limit
            ((1, 20, 0), None),
            ((1, 20, 5), Some((false, 0, 5))),
            ((2, 20, 20), None),
            ((1, 20, 100_000), Some((false, 0, 20))),
            ((5_000, 20, 100_000), Some((true, 0, 20))),
            ((5_000, 20, 99_999), Some((true, 0, 19))),
            ((4_999, 20, 99_999), Some((true, 19, 20))),
            ((2, 20, 60), Some((false, 20, 20))),
            ((2, 20, 59), Some((true, 19, 20))),
            ((1_000_000_000, 100, 5), None),
        ];
        for ((page, page_size, total), due) in cases {
            let found = Window::of(Page { page, page_size }, total);
            assert_eq!(found.map(|w| (w.from_end, w.offset, w.limit)), due, "{page} {page_size} {total}");
        }
    }

    #[test]
    fn pages_cover_the_list_exactly_once() {
        for total in 0..50_i64 {
            for page_size in 1..12 {
                let list: Vec<_> = (0..total).collect();
                let mut seen = Vec::new();
                for page in 1..=total.max(1) {
                    let Some(window) = Window::of(Page { page, page_size }, total) else { continue };
                    let [offset, limit] = [window.offset, window.limit].map(|n| usize::try_from(n).unwrap());
                    if window.from_end {
                        let mut rows: Vec<_> = list.iter().rev().skip(offset).take(limit).copied().collect();
                        rows.reverse();
                        seen.extend(rows);
                    } else {
                        seen.extend(list.iter().skip(offset).take(limit));
                    }
                }
                assert_eq!(seen, list, "{total} by {page_size}");
            }
        }
    }
}
