//! A `[[providers]]` table of the providers file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env::VarError;
use std::path::Path;

use kernel::document::{DeTable, DeValue, Spanned, did_you_mean, shown};
use kernel::hosts;
use kernel::ids::OrganizationId;
use kernel::secrets::{Secret, files};
use kernel::urls::HttpUrl;

use super::{Report, start};
use crate::settings::{Kind, Link, Membership, Provision, Role, Settings, fold_domain};

/// Ids that conflict with paths of the console.
const RESERVED_IDS: [&str; 2] = ["confirm", "second-factor"];
/// The maximum lifetime of a session, in hours. Sessions of a login with a password have the same lifetime.
const MAX_SESSION_HOURS: u32 = 720;
/// Paths of Entra's issuers that admit users of any organization. Their tokens contain another issuer.
const ANYBODYS: [&str; 3] = ["/common", "/organizations", "/consumers"];

const WORDS_OF_ROLES: &str = "\"member\", \"admin\" or \"owner\"";

pub(super) struct Entry<'r, 'a, 't> {
    at: usize,
    keys: &'r DeTable<'t>,
    label: String,
    report: RefCell<&'r mut Report<'a>>,
    /// The keys that were read.
    known: RefCell<Vec<&'static str>>,
}

impl<'r, 'a, 't> Entry<'r, 'a, 't> {
    pub(super) fn new(at: usize, keys: &'r DeTable<'t>, report: &'r mut Report<'a>) -> Self {
        let label = match keys.get("id").and_then(|id| id.get_ref().as_str()) {
            Some(id) => format!("provider {}", shown(&DeValue::String(id.into())).replace('"', "`")),
            None => "provider without `id`".to_owned(),
        };
        Self { at, keys, label, report: RefCell::new(report), known: RefCell::default() }
    }

    fn refuse(&self, at: usize, why: &str) {
        self.report.borrow_mut().refuse(at, &format!("{}: {why}", self.label));
    }

    fn get(&self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        self.known.borrow_mut().push(key);
        self.keys.get(key)
    }

    /// Reads an optional key. The outer `None` means that it has a mistake, which was reported.
    #[allow(clippy::option_option, reason = "wrong, missing and present are three answers")]
    fn optional<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<Option<T>> {
        let Some(value) = self.get(key) else { return Some(None) };
        let parsed = parse(value.get_ref());
        if parsed.is_none() {
            let found = if key.starts_with("client_secret") {
                String::new()
            } else {
                format!(", found {}", shown(value.get_ref()))
            };
            self.refuse(start(value), &format!("`{key}`: expected {expected}{found}"));
        }
        parsed.map(Some)
    }

    fn or<T>(
        &self,
        key: &'static str,
        default: T,
        expected: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        Some(self.optional(key, expected, parse)?.unwrap_or(default))
    }

    fn required<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        let read = self.optional(key, expected, parse)?;
        if read.is_none() {
            self.refuse(self.at, &format!("the key `{key}` is missing: write {expected}"));
        }
        read
    }

    fn flag(&self, key: &'static str) -> Option<bool> {
        self.or(key, false, "true or false", |value| match value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Reads the whole table; `None` if it has mistakes, which were reported.
    #[allow(clippy::too_many_lines, reason = "a table with one row per key")]
    pub(super) fn read(
        self,
        folder: &Path,
        environment: fn(&str) -> Result<String, VarError>,
    ) -> Option<Settings> {
        let before = self.report.borrow().problems.len();
        let id =
            self.required("id", "1 to 32 lower-case letters, digits and `-`, such as \"google\"", parse_id);
        let name = self.required("name", "a button label of 1 to 40 characters", |value| line(value, 40));
        let kind = self.or("kind", Kind::OpenId, "\"oidc\" or \"github\"", |value| match value.as_str()? {
            "oidc" => Some(Kind::OpenId),
            "github" => Some(Kind::GitHub),
            _ => None,
        });
        let kind = kind.unwrap_or(Kind::OpenId);
        let issuer = self.issuer(kind);
        let client_id =
            self.required("client_id", "the client's id, as the provider gave it", |value| line(value, 255));
        let client_secret = self.client_secret(folder, environment);
        let scopes = self.scopes(kind);
        let what = "domains of e-mail addresses such as [\"example.com\"]";
        let domains = self.or("domains", Vec::new(), what, |value| texts(value, fold_domain));
        let membership = self.membership();
        let provision = self.provision(domains.as_ref());
        let is_google = issuer.as_deref() == Some("https://accounts.google.com");
        let link = self.link(domains.as_ref(), is_google);
        let takes_verified_as_text = self.flag("email_verified_as_text");
        let trusts_second_factor = self.flag("trusts_second_factor");
        let what = "values of the claim `acr` such as [\"urn:example:mfa\"]";
        let acr_values = self.or("acr_values", Vec::new(), what, |value| {
            texts(value, |text| (!text.is_empty() && text.len() <= 255).then(|| text.to_owned()))
        });
        if trusts_second_factor == Some(false) && acr_values.as_ref().is_some_and(|values| !values.is_empty())
        {
            self.refuse(self.at, "`acr_values` needs `trusts_second_factor = true`");
        }
        let what = format!("a whole number from 1 to {MAX_SESSION_HOURS}");
        let session_hours = self.or("session_hours", 12, &what, |value| {
            let hours: u32 = value.as_integer()?.to_string().parse().ok()?;
            (1..=MAX_SESSION_HOURS).contains(&hours).then_some(hours)
        });
        let takes_logouts = self.flag("back_channel_logout");
        let what = "\"logout+jwt\" or \"any\"";
        let takes_any_logout_type =
            self.or("logout_token_type", false, what, |value| match value.as_str()? {
                "logout+jwt" => Some(false),
                "any" => Some(true),
                _ => None,
            });
        if takes_logouts == Some(false) && takes_any_logout_type == Some(true) {
            self.refuse(self.at, "`logout_token_type` needs `back_channel_logout = true`");
        }
        if kind == Kind::GitHub {
            self.refuse_of_github();
        }
        self.refuse_unknown();
        if self.report.borrow().problems.len() > before {
            return None;
        }
        Some(Settings {
            id: id?,
            name: name?,
            kind,
            issuer: issuer?,
            client_id: client_id?,
            client_secret: client_secret?,
            scopes: scopes?,
            domains: domains?,
            membership: membership?,
            provision: provision?,
            link: link?,
            takes_verified_as_text: takes_verified_as_text?,
            trusts_second_factor: trusts_second_factor?,
            acr_values: acr_values?,
            session_hours: session_hours?,
            takes_logouts: takes_logouts?,
            takes_any_logout_type: takes_any_logout_type?,
        })
    }

    fn issuer(&self, kind: Kind) -> Option<String> {
        let what = "a URL that starts with `https://` (`http://` on this machine only), without login, query or fragment";
        let issuer = self.optional("issuer", what, |value| {
            let text = value.as_str()?;
            let url = HttpUrl::parse(text, 255)?;
            let is_safe = url.is_https() || hosts::is_loopback(url.host());
            (is_safe && url.uri().query().is_none()).then(|| text.to_owned())
        })?;
        match (issuer, kind) {
            (Some(issuer), _) => {
                let path = issuer.split_once("microsoftonline.com").map_or("", |(_, path)| path);
                if ANYBODYS.iter().any(|part| path.to_ascii_lowercase().starts_with(part)) {
                    let why = "`issuer`: this issuer accepts users of every organization. Use your tenant's \
                               issuer, `https://login.microsoftonline.com/TENANT-ID/v2.0`";
                    self.refuse(self.keys.get("issuer").map_or(self.at, start), why);
                    return None;
                }
                Some(issuer)
            }
            (None, Kind::GitHub) => Some("https://github.com".to_owned()),
            (None, Kind::OpenId) => {
                self.refuse(self.at, &format!("the key `issuer` is missing: write {what}"));
                None
            }
        }
    }

    fn client_secret(
        &self,
        folder: &Path,
        environment: fn(&str) -> Result<String, VarError>,
    ) -> Option<Secret> {
        if let Some(value) = self.get("client_secret") {
            let why = "`client_secret`: don't write the secret in this file: put it into a separate file, \
                       and set `client_secret_file` to its path";
            self.refuse(start(value), why);
            return None;
        }
        let text = |value: &DeValue<'_>| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let file = self.optional("client_secret_file", "a path that is not empty", text)?;
        let variable = self.optional("client_secret_env", "the name of an environment variable", text)?;
        let (key, read) = match (file, variable) {
            (Some(file), None) => ("client_secret_file", files::read_credential(&folder.join(file))),
            (None, Some(variable)) => {
                let read = environment(&variable)
                    .map_err(|_| format!("the environment variable {variable} isn't set"));
                let read = read.and_then(|text| {
                    files::credential(&text)
                        .map_err(|rule| format!("the environment variable {variable} must contain {rule}"))
                });
                ("client_secret_env", read.map(|secret| (secret, None)))
            }
            (Some(_), Some(_)) => {
                self.refuse(self.at, "`client_secret_file` and `client_secret_env`: name one of them");
                return None;
            }
            (None, None) => {
                let why = "the key `client_secret_file` is missing: write the path of a file with the client's secret, or name \
                           an environment variable as `client_secret_env`";
                self.refuse(self.at, why);
                return None;
            }
        };
        let at = self.keys.get(key).map_or(self.at, start);
        match read {
            Ok((secret, warning)) => {
                if let Some(warning) = warning {
                    self.report.borrow_mut().warn(at, &format!("{}: `{key}`: {warning}", self.label));
                }
                Some(secret)
            }
            Err(why) => {
                self.refuse(at, &format!("`{key}`: {why}"));
                None
            }
        }
    }

    fn scopes(&self, kind: Kind) -> Option<Vec<String>> {
        let defaults: &[&str] = match kind {
            Kind::OpenId => &["openid", "email", "profile"],
            Kind::GitHub => &["read:user", "user:email"],
        };
        let default = defaults.iter().map(|scope| (*scope).to_owned()).collect();
        let what = "scopes such as [\"openid\", \"email\", \"profile\"]";
        let scopes = self.or("scopes", default, what, |value| {
            texts(value, |text| {
                let is_scope = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
                is_scope.then(|| text.to_owned())
            })
        })?;
        if kind == Kind::OpenId && !scopes.iter().any(|scope| scope == "openid") {
            let at = self.keys.get("scopes").map_or(self.at, start);
            self.refuse(
                at,
                "`scopes`: `openid` is missing: add it, because the provider sends no ID token without it",
            );
            return None;
        }
        Some(scopes)
    }

    /// Reads the settings of memberships. The outer `None` means that they have a mistake, which was
    /// reported.
    #[allow(clippy::option_option, reason = "wrong, missing and present are three answers")]
    fn membership(&self) -> Option<Option<Membership>> {
        let what = "the id of an organization, `org_…`";
        let organization =
            self.optional("organization", what, |value| OrganizationId::parse(value.as_str()?));
        let default_role = self
            .or("default_role", Role::Member, "\"member\" or \"admin\"", |value| parse_role(value.as_str()?));
        let what = "the name of a claim, such as \"groups\"";
        let groups_claim = self.optional("groups_claim", what, |value| line(value, 255));
        let roles = self.roles();
        let maps_owner = self.flag("map_owner");
        let is_exclusive = self.flag("exclusive");
        let (organization, default_role) = (organization?, default_role?);
        let (groups_claim, roles, maps_owner, is_exclusive) =
            (groups_claim?, roles?, maps_owner?, is_exclusive?);
        let mut needs = Vec::new();
        if organization.is_none() {
            let of_organizations = ["default_role", "groups_claim", "roles", "map_owner", "exclusive"];
            needs.extend(of_organizations.iter().map(|key| (*key, "organization")));
        }
        if groups_claim.is_none() {
            needs.extend(["roles", "exclusive"].iter().map(|key| (*key, "groups_claim")));
        }
        let mut is_complete = true;
        for (key, missing) in needs {
            if let Some(value) = self.keys.get(key) {
                self.refuse(start(value), &format!("`{key}` needs `{missing}`: add it, or remove `{key}`"));
                is_complete = false;
            }
        }
        if default_role == Role::Owner {
            let at = self.keys.get("default_role").map_or(self.at, start);
            self.refuse(at, "`default_role`: everyone would be an owner: write \"member\" or \"admin\"");
            is_complete = false;
        }
        if roles.values().any(|role| *role == Role::Owner) && !maps_owner {
            let at = self.keys.get("roles").map_or(self.at, start);
            let why = "`roles`: a group of owners needs `map_owner = true`: the provider then controls the organization";
            self.refuse(at, why);
            is_complete = false;
        }
        is_complete.then(|| {
            organization.map(|organization_id| Membership {
                organization_id,
                default_role,
                groups_claim,
                roles,
                is_exclusive,
            })
        })
    }

    fn roles(&self) -> Option<BTreeMap<String, Role>> {
        let Some(value) = self.get("roles") else { return Some(BTreeMap::new()) };
        let Some(table) = value.get_ref().as_table() else {
            let why = format!(
                "`roles`: expected a table such as {{ \"admins\" = \"admin\" }}, found {}",
                shown(value.get_ref())
            );
            self.refuse(start(value), &why);
            return None;
        };
        let mut roles = BTreeMap::new();
        for (group, role) in table {
            match role.get_ref().as_str().and_then(parse_role) {
                Some(role) => drop(roles.insert(group.get_ref().to_string(), role)),
                None => {
                    let group = shown(&DeValue::String(group.get_ref().clone()));
                    let found = shown(role.get_ref());
                    self.refuse(
                        start(role),
                        &format!("`roles`: {group}: expected {WORDS_OF_ROLES}, found {found}"),
                    );
                }
            }
        }
        (roles.len() == table.len()).then_some(roles)
    }

    fn provision(&self, domains: Option<&Vec<String>>) -> Option<Provision> {
        let what = "\"none\", \"invited\", \"domain\" or \"any\"";
        let provision = self.or("provision", Provision::None, what, |value| match value.as_str()? {
            "none" => Some(Provision::None),
            "invited" => Some(Provision::Invited),
            "domain" => Some(Provision::Domain),
            "any" => Some(Provision::Any),
            _ => None,
        })?;
        if provision == Provision::Domain && domains.is_some_and(Vec::is_empty) {
            let at = self.keys.get("provision").map_or(self.at, start);
            self.refuse(at, "`provision`: \"domain\" needs `domains`: list your organization's domains");
        }
        Some(provision)
    }

    fn link(&self, domains: Option<&Vec<String>>, is_google: bool) -> Option<Link> {
        let link =
            self.or("link", Link::Confirm, "\"confirm\" or \"verified_email\"", |value| {
                match value.as_str()? {
                    "confirm" => Some(Link::Confirm),
                    "verified_email" => Some(Link::VerifiedEmail),
                    _ => None,
                }
            })?;
        if link == Link::VerifiedEmail && domains.is_some_and(Vec::is_empty) && !is_google {
            let at = self.keys.get("link").map_or(self.at, start);
            let why = "`link`: \"verified_email\" needs `domains`: list this provider's own domains";
            self.refuse(at, why);
        }
        Some(link)
    }

    fn refuse_of_github(&self) {
        let foreign = [
            "groups_claim",
            "roles",
            "exclusive",
            "email_verified_as_text",
            "trusts_second_factor",
            "acr_values",
        ];
        for key in foreign.into_iter().chain(["back_channel_logout", "logout_token_type"]) {
            if let Some(value) = self.keys.get(key) {
                self.refuse(start(value), &format!("`{key}`: GitHub doesn't support it: remove it"));
            }
        }
    }

    fn refuse_unknown(&self) {
        let known = self.known.borrow();
        for key in self.keys.keys().filter(|key| !known.iter().any(|known| *known == key.get_ref())) {
            let names = known.iter().copied().filter(|name| *name != "client_secret");
            let hint = did_you_mean(key.get_ref(), names);
            let name = shown(&DeValue::String(key.get_ref().clone())).replace('"', "`");
            self.refuse(key.span().start, &format!("unknown key {name}{hint}"));
        }
    }
}

fn parse_id(value: &DeValue<'_>) -> Option<String> {
    let text = value.as_str()?;
    let is_id = (1..=32).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !RESERVED_IDS.contains(&text);
    is_id.then(|| text.to_owned())
}

fn parse_role(word: &str) -> Option<Role> {
    match word {
        "member" => Some(Role::Member),
        "admin" => Some(Role::Admin),
        "owner" => Some(Role::Owner),
        _ => None,
    }
}

fn line(value: &DeValue<'_>, max: usize) -> Option<String> {
    let text = value.as_str()?;
    let fits = (1..=max).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

fn texts(value: &DeValue<'_>, parse: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| parse(item.get_ref().as_str()?)).collect()
}
