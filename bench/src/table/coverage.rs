//! The rows of all routes, and the routes that have none.

use hyper::Method;
use tollkeeper::api::routes::{self, Route};

use super::floors::Floor;
use super::operations::{self, ORGANIZATION, Operation, PROJECT, get};
use super::world::World;

/// Path prefixes of routes that have no row, each with the reason.
const UNMEASURED: [(&str, &str); 25] = [
    ("/v1/auth/resend-verification", "it sends an e-mail, like POST /v1/auth/forgot-password"),
    ("/v1/auth/change-email", "it hashes a password, like a login, and sends two e-mails"),
    ("/v1/auth/sessions", "like POST /v1/auth/logout"),
    ("/v1/auth/providers", "a list in memory, which a program shows before a login"),
    ("/v1/auth/connections", "rare: sign-in methods of an account, which rarely change"),
    ("/v1/auth/second-factor", "rare: second factors of an account, which rarely change"),
    ("/v1/auth/totp", "rare: second factors of an account, which rarely change"),
    ("/v1/auth/recovery-codes", "rare: second factors of an account, which rarely change"),
    ("/v1/auth/passkeys", "rare: second factors of an account, which rarely change"),
    ("/v1/auth/passkey-login", "a login without a hash; it needs an authenticator"),
    ("/v1/auth/reauthenticate", "it hashes a password, like a login"),
    ("/v1/organizations/{organization_id}/billing/export", "rare: one file per month"),
    (
        "/v1/organizations/{organization_id}/billing/budgets",
        "rare: reads and writes like those of projects and keys",
    ),
    ("/v1/organizations/{organization_id}/billing/balance-alert", "rare: a single row, found by its key"),
    ("/v1/organizations/{organization_id}/billing/payments", "rare: it waits for the payment processor"),
    ("/v1/organizations/{organization_id}/billing/payment-method", "rare: it rarely changes"),
    ("/v1/organizations/{organization_id}/billing/auto-top-up", "rare: a single row, found by its key"),
    ("/v1/billing/stripe/events", "rare: a few for each payment"),
    ("/v1/organizations/{organization_id}/webhooks", "rare: set up once and looked at when it fails"),
    ("/v1/organizations/{organization_id}/calls/{call_id}", "a row by its key"),
    ("/v1/organizations/{organization_id}/projects/{project_id}/calls/{call_id}", "a row by its key"),
    ("/verify-email", "POST /v1/auth/verify-email behind a form"),
    ("/reset-password", "POST /v1/auth/reset-password behind a form"),
    ("/change-email", "a form; like POST /v1/auth/change-password with one hash"),
    ("/invitations/accept", "a form; its transaction is like that of a member added to a project"),
];

/// Returns the groups in the order of the table of routes, followed by the reads without a separate row.
pub fn groups() -> Vec<(&'static str, Vec<Operation>)> {
    let mut groups = operations::groups();
    let measured: Vec<_> = routes_of(&groups).collect();
    let others = routes::table()
        .into_iter()
        .filter(|route| !measured.contains(&name(route).as_str()) && reason(route).is_none());
    groups.push(("Other reads", others.filter_map(|route| read(&route)).collect()));
    groups
}

/// Returns the route of each row.
fn routes_of(groups: &[(&'static str, Vec<Operation>)]) -> impl Iterator<Item = &'static str> {
    groups.iter().flat_map(|(_, operations)| operations).map(|operation| operation.route)
}

/// Returns the name of a route in this table.
fn name(route: &Route) -> String {
    format!("{} {}", route.method, route.path)
}

/// Returns the reason why a route isn't measured.
fn reason(route: &Route) -> Option<&'static str> {
    UNMEASURED.iter().find(|(path, _)| route.path.starts_with(path)).map(|(_, reason)| *reason)
}

/// Returns the row of a read that needs only an organization's or a project's path; otherwise `None`.
fn read(route: &Route) -> Option<Operation> {
    let (rest, is_in_project) = match route.path.strip_prefix(PROJECT) {
        Some(rest) => (rest, true),
        None => (route.path.strip_prefix(ORGANIZATION)?, false),
    };
    if route.method != Method::GET || rest.contains('{') {
        return None;
    }
    let floor = if route.handler.ends_with("::list") { Floor::Page } else { Floor::Point };
    let call = move |w: &World| {
        let parent = if is_in_project { &w.project } else { &w.organization };
        Ok(get(w, &format!("{parent}{rest}")))
    };
    Some(Operation { route: name(route).leak(), variant: "", floor, call: Box::new(call) })
}

/// Returns the routes without a row, each with the reason if one is known.
pub fn unmeasured() -> Vec<(String, Option<&'static str>)> {
    let groups = groups();
    let measured: Vec<_> = routes_of(&groups).collect();
    let routes = routes::table().into_iter().map(|route| (name(&route), reason(&route)));
    routes.filter(|(route, _)| !measured.contains(&route.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_measured_or_excluded() {
        let without_reason: Vec<_> =
            unmeasured().into_iter().filter(|(_, reason)| reason.is_none()).collect();
        assert!(without_reason.is_empty(), "{without_reason:?}");
        for (path, _) in UNMEASURED {
            let is_below = |(route, _): &(String, _)| route.split_once(' ').unwrap().1.starts_with(path);
            assert!(unmeasured().iter().any(is_below), "{path}");
        }
    }

    #[test]
    fn only_routes_are_measured() {
        let routes: Vec<_> = routes::table().iter().map(name).collect();
        for route in routes_of(&groups()) {
            assert!(routes.iter().any(|known| known == route), "{route}");
        }
    }

    #[test]
    fn reads_of_an_organization_or_a_project_need_no_row() {
        let found: Vec<_> = routes::table().iter().filter_map(read).collect();
        let floor =
            |path: &str| found.iter().find(|row| row.route == format!("GET {path}")).map(|row| row.floor);
        assert_eq!(floor(&format!("{ORGANIZATION}/limits")), Some(Floor::Point));
        assert_eq!(floor(&format!("{PROJECT}/api-keys")), Some(Floor::Page));
        assert_eq!(floor(&format!("{PROJECT}/api-keys/{{key_id}}")), None);
        assert_eq!(floor("/v1/models"), None);
    }
}
