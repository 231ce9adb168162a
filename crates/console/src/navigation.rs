//! The side navigation: links to the routes that have a label, in the order of the table.
//!
//! A route belongs to the section whose path it continues without another parameter. Users see the link if
//! their role allows them to open the page.

use api::routes::Route;

/// The section of an organization.
pub const ORGANIZATION: &str = "/console/organizations/{organization_id}";

/// The section of a project.
pub const PROJECT: &str = "/console/organizations/{organization_id}/projects/{project_id}";

/// The section of the installation, whose pages require no role.
pub const INSTALLATION: &str = "/console/installation";

/// A link of the navigation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NavigationLink {
    pub label: &'static str,
    pub href: String,
    /// `true` if the current page is this entry's page, or below it.
    pub is_current: bool,
}

/// Returns the labels of the pages of a section that this role may open, each with its path after the section's.
pub fn pages(routes: &[Route], section: &str, role: &str) -> Vec<(&'static str, &'static str)> {
    let admits = |route: &&Route| route.access.roles.as_ref().is_none_or(|(_, roles)| roles.contains(&role));
    let page = |route: &Route| Some((route.label?, route.path.strip_prefix(section)?));
    routes.iter().filter(admits).filter_map(page).filter(|(_, suffix)| !suffix.contains('{')).collect()
}

/// Returns the links to pages of a section. `base` is the link to the section, `rest` the path of the current page
/// after the section's, if the page is in it.
pub fn links(pages: &[(&'static str, &'static str)], base: &str, rest: Option<&str>) -> Vec<NavigationLink> {
    let current = rest.and_then(|rest| {
        let suffixes = pages.iter().map(|(_, suffix)| *suffix);
        suffixes.filter(|suffix| is_at(rest, suffix)).max_by_key(|suffix| suffix.len())
    });
    let link = |&(label, suffix): &(&'static str, &'static str)| NavigationLink {
        label,
        href: format!("{base}{suffix}"),
        is_current: Some(suffix) == current,
    };
    pages.iter().map(link).collect()
}

/// Returns `true` if a page is the page of an entry, or below it. An overview has no pages below it.
fn is_at(rest: &str, suffix: &str) -> bool {
    let rest = rest.trim_end_matches('/');
    match rest.strip_prefix(suffix) {
        Some("") => true,
        Some(below) => !suffix.is_empty() && below.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_current_the_closest() {
        let pages = ["", "/projects", "/billing", "/billing/invoices"].map(|suffix| (suffix, suffix));
        let current = |rest: Option<&str>| {
            let links = links(&pages, "/o", rest);
            let found: Vec<_> = links.iter().filter(|link| link.is_current).map(|link| link.label).collect();
            assert!(found.len() <= 1, "{found:?}");
            found.first().copied()
        };
        for (rest, label) in [
            (Some(""), Some("")),
            (Some("/"), Some("")),
            (Some("/projects"), Some("/projects")),
            (Some("/projects/new"), Some("/projects")),
            (Some("/billing"), Some("/billing")),
            (Some("/billing/movements"), Some("/billing")),
            (Some("/billing/invoices/x"), Some("/billing/invoices")),
            (Some("/billings"), None),
            (Some("/elsewhere"), None),
            (None, None),
        ] {
            assert_eq!(current(rest), label, "{rest:?}");
        }
        assert_eq!(links(&pages, "/o", None)[1].href, "/o/projects");
    }
}
