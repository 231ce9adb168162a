//! The frame of every page: header, navigation, footer.

use api::gate::{SignedIn, Target, Theme};
use askama::Template;
use kernel::error::Error;
use kernel::ids::{OrganizationId, ProjectId, RequestId};
use tenants::navigation::{Navigation, Organization, Person, Project};
use tenants::roles::{OrganizationAction, ProjectAction};

use crate::assets;
use crate::console::Console;
use crate::navigation::{self, INSTALLATION, NavigationLink, ORGANIZATION, PROJECT};
use crate::notices::Done;

/// The frame of a page. Every template has a field `shell`, which `frame.html` shows.
#[derive(Clone)]
pub struct Shell {
    console: Console,
    /// The signed-in user, if any.
    pub person: Option<Person>,
    /// The user's newest organizations, for the menu.
    pub organizations: Vec<Organization>,
    /// The organization that the page is about.
    pub organization: Option<Organization>,
    /// The project that the page is about.
    pub project: Option<Project>,
    /// The page's path after `/console`.
    path: String,
    /// The notice about the action that was just completed.
    pub notice: Option<&'static str>,
    pub request_id: RequestId,
    /// The theme in this browser; `None` for the system's theme.
    pub theme: Option<Theme>,
}

/// The beginning of a page's body: header and navigation.
#[derive(Template)]
#[template(path = "header.html")]
pub struct Header<'a> {
    shell: &'a Shell,
}

impl Shell {
    /// Returns the beginning of a page, which `frame.html` includes without escaping.
    pub fn header(&self) -> Header<'_> {
        Header { shell: self }
    }

    /// Returns the frame of a page for this user, with the organization and the project of its path.
    ///
    /// # Errors
    /// An error if the database fails.
    pub async fn read(console: &Console, person: &SignedIn) -> Result<Self, Error> {
        let target = person.target();
        // Operators view an organization without being members.
        let is_installation = target.path.starts_with(INSTALLATION);
        let organization_id =
            OrganizationId::parse(target.parameter("organization_id")).filter(|_| !is_installation);
        let project_id = ProjectId::parse(target.parameter("project_id"));
        let caller = person.caller()?;
        let Navigation { person, organizations, organization, project } =
            tenants::navigation::read(&console.tenants, &caller, organization_id, project_id).await?;
        Ok(Self { person, organizations, organization, project, ..Self::without_person(console, target) })
    }

    /// Returns the frame of a page for a visitor who isn't signed in.
    pub fn without_person(console: &Console, target: &Target) -> Self {
        Self {
            console: console.clone(),
            person: None,
            organizations: Vec::new(),
            organization: None,
            project: None,
            path: target.path.strip_prefix("/console").unwrap_or_default().to_owned(),
            notice: Done::sentence(&target.query),
            request_id: target.request_id,
            theme: target.theme,
        }
    }

    /// Returns the link to a page. `path` is the part after `/console`.
    pub fn link(&self, path: &str) -> String {
        self.console.link(path)
    }

    /// Returns the link to a page of an organization. `path` is the part after its id.
    pub fn link_to(&self, organization: &OrganizationId, path: &str) -> String {
        self.link(&format!("/organizations/{organization}{path}"))
    }

    /// Returns the link to a page of the organization that this page is about.
    pub fn organization_link(&self, path: &str) -> String {
        match &self.organization {
            Some(organization) => self.link_to(&organization.id, path),
            None => self.link("/organizations"),
        }
    }

    /// Returns the link to an item of the organization that this page is about. `noun` is the path of the
    /// item's list, and `path` is the part after the item's id.
    pub fn item_link(&self, noun: &str, id: impl std::fmt::Display, path: &str) -> String {
        self.organization_link(&format!("/{noun}/{id}{path}"))
    }

    /// Returns the link to a page of the project that this page is about.
    pub fn project_link(&self, path: &str) -> String {
        match &self.project {
            Some(project) => self.organization_link(&format!("/projects/{}{path}", project.id)),
            None => self.organization_link(""),
        }
    }

    /// Returns the link to an item of the project that this page is about, like [`Self::item_link`].
    pub fn project_item_link(&self, noun: &str, id: impl std::fmt::Display, path: &str) -> String {
        self.project_link(&format!("/{noun}/{id}{path}"))
    }

    /// Returns `true` if the user's role allows an action in the page's organization. Actions that aren't
    /// allowed aren't offered.
    pub fn may(&self, action: OrganizationAction) -> bool {
        self.organization.as_ref().is_some_and(|organization| organization.role.allows(action))
    }

    /// Returns `true` if the user's role allows an action in the page's project.
    pub fn may_in_project(&self, action: ProjectAction) -> bool {
        self.project.as_ref().is_some_and(|project| project.role.allows(action))
    }

    /// Returns the links of the page's organization.
    pub fn organization_links(&self) -> Vec<NavigationLink> {
        let Some(organization) = &self.organization else { return Vec::new() };
        let rest = self.rest_after(&format!("/organizations/{}", organization.id));
        // A page of a project is in the navigation of the project.
        let rest = rest.filter(|_| self.project.is_none());
        self.links(ORGANIZATION, organization.role.as_str(), &self.organization_link(""), rest)
    }

    /// Returns the links of the page's project.
    pub fn project_links(&self) -> Vec<NavigationLink> {
        let (Some(organization), Some(project)) = (&self.organization, &self.project) else {
            return Vec::new();
        };
        let rest = self.rest_after(&format!("/organizations/{}/projects/{}", organization.id, project.id));
        self.links(PROJECT, project.role.as_str(), &self.project_link(""), rest)
    }

    /// Returns `true` if the user is an operator of the installation.
    pub fn is_operator(&self) -> bool {
        self.person.as_ref().is_some_and(|person| person.is_operator)
    }

    /// Returns the links of the installation, on its pages.
    pub fn installation_links(&self) -> Vec<NavigationLink> {
        match self.rest_after("/installation").filter(|_| self.is_operator()) {
            Some(rest) => self.links(INSTALLATION, "", &self.link("/installation"), Some(rest)),
            None => Vec::new(),
        }
    }

    /// Returns the link to an item of the installation, like [`Self::item_link`].
    pub fn installation_link(&self, noun: &str, id: impl std::fmt::Display, path: &str) -> String {
        self.link(&format!("/installation/{noun}/{id}{path}"))
    }

    /// Returns `true` if the current page has this path. `path` is the part after `/console`.
    pub fn is_at(&self, path: &str) -> bool {
        self.path == path
    }

    /// Returns the link to a static file, by its name.
    pub fn asset(&self, name: &str) -> String {
        self.link(&assets::path(name))
    }

    /// Returns the name of the theme; `system` without one.
    pub fn theme_name(&self) -> &'static str {
        self.theme.map_or("system", Theme::as_str)
    }

    /// Returns the version of the program.
    pub fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    fn links(&self, section: &str, role: &str, base: &str, rest: Option<&str>) -> Vec<NavigationLink> {
        navigation::links(&navigation::pages(&self.console.navigation, section, role), base, rest)
    }

    fn rest_after(&self, prefix: &str) -> Option<&str> {
        self.path.strip_prefix(prefix)
    }
}
