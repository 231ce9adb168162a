//! The places of the side navigation: a page for each, and the action that it needs.
//!
//! A place is listed here once its route is in the table. It is shown to people whose role allows its action.

use tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};

/// A place in an organization or a project.
#[derive(Clone, Copy, Debug)]
pub struct Place<A> {
    /// Its path after that of the organization or project.
    pub suffix: &'static str,
    pub label: &'static str,
    /// The action that its page needs.
    pub action: A,
}

/// The places of an organization: below `/console/organizations/{organization_id}`.
pub const ORGANIZATION: &[Place<OrganizationAction>] = &[
    Place { suffix: "", label: "Overview", action: OrganizationAction::View },
    Place { suffix: "/projects", label: "Projects", action: OrganizationAction::View },
    Place { suffix: "/members", label: "Members", action: OrganizationAction::ViewMembers },
    Place { suffix: "/usage", label: "Usage", action: OrganizationAction::ViewBilling },
    Place { suffix: "/billing", label: "Billing", action: OrganizationAction::ViewBilling },
    Place { suffix: "/limits", label: "Limits", action: OrganizationAction::View },
    Place { suffix: "/webhooks", label: "Webhooks", action: OrganizationAction::ViewBilling },
    Place { suffix: "/audit-log", label: "Audit log", action: OrganizationAction::ViewAuditLog },
    Place { suffix: "/settings", label: "Settings", action: OrganizationAction::Modify },
];

/// The places of a project: below `/console/organizations/{organization_id}/projects/{project_id}`.
pub const PROJECT: &[Place<ProjectAction>] = &[
    Place { suffix: "", label: "Overview", action: ProjectAction::View },
    Place { suffix: "/api-keys", label: "API keys", action: ProjectAction::ManageApiKeys },
    Place { suffix: "/playground", label: "Playground", action: ProjectAction::CallModels },
    Place { suffix: "/usage", label: "Usage", action: ProjectAction::ViewUsage },
    Place { suffix: "/members", label: "Members", action: ProjectAction::ViewMembers },
    Place { suffix: "/settings", label: "Settings", action: ProjectAction::Modify },
];

/// The places of the installation: below `/console/installation`, all for operators.
pub const INSTALLATION: &[Place<()>] = &[
    Place { suffix: "", label: "Overview", action: () },
    Place { suffix: "/users", label: "Accounts", action: () },
    Place { suffix: "/organizations", label: "Organizations", action: () },
    Place { suffix: "/invoices", label: "Open invoices", action: () },
    Place { suffix: "/margins", label: "Margins", action: () },
    Place { suffix: "/catalog", label: "Catalog", action: () },
    Place { suffix: "/mail", label: "E-mail", action: () },
    Place { suffix: "/audit", label: "Audit trail", action: () },
    Place { suffix: "/settings", label: "Configuration", action: () },
];

/// A link of the navigation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NavigationLink {
    pub label: &'static str,
    pub href: String,
    /// `true` if the page is here, or below.
    pub is_current: bool,
}

/// Returns the links of an organization for this role. `rest` is the path of the page after the organization's.
pub fn of_organization(base: &str, rest: Option<&str>, role: OrganizationRole) -> Vec<NavigationLink> {
    links(ORGANIZATION.iter().filter(|place| role.allows(place.action)), base, rest)
}

/// Returns the links of a project for this role.
pub fn of_project(base: &str, rest: Option<&str>, role: ProjectRole) -> Vec<NavigationLink> {
    links(PROJECT.iter().filter(|place| role.allows(place.action)), base, rest)
}

/// Returns the links of the installation.
pub fn of_installation(base: &str, rest: &str) -> Vec<NavigationLink> {
    links(INSTALLATION.iter(), base, Some(rest))
}

fn links<'a, A: 'a>(
    places: impl Iterator<Item = &'a Place<A>> + Clone,
    base: &str,
    rest: Option<&str>,
) -> Vec<NavigationLink> {
    // The place with the longest suffix is the current one.
    let current = rest.and_then(|rest| {
        places
            .clone()
            .filter(|place| is_at(rest, place.suffix))
            .map(|place| place.suffix)
            .max_by_key(|s| s.len())
    });
    let link = |place: &Place<A>| NavigationLink {
        label: place.label,
        href: format!("{base}{}", place.suffix),
        is_current: Some(place.suffix) == current,
    };
    places.map(link).collect()
}

/// Returns `true` if a page is at this place or below it. An overview has no pages below it.
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
    fn one_place_is_current_the_closest() {
        let places = ["", "/projects", "/billing", "/billing/invoices"].map(|suffix| Place {
            suffix,
            label: suffix,
            action: (),
        });
        let current = |rest: Option<&str>| {
            let links = links(places.iter(), "/o", rest);
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
        assert_eq!(links(places.iter(), "/o", None)[1].href, "/o/projects");
    }
}
