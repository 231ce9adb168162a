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
    /// The person who is signed in, if any.
    pub person: Option<Person>,
    /// The person's newest organizations, for the menu.
    pub organizations: Vec<Organization>,
    /// The organization that the page is about.
    pub organization: Option<Organization>,
    /// The project that the page is about.
    pub project: Option<Project>,
    /// The page's path after `/console`.
    path: String,
    /// The notice of the action that has just been done.
    pub notice: Option<&'static str>,
    pub request_id: RequestId,
    /// The theme in this browser; `None` follows the system.
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

    /// Returns the frame of a page for this person, with the organization and the project of its path.
    ///
    /// # Errors
    /// The database fails.
    pub async fn read(console: &Console, person: &SignedIn) -> Result<Self, Error> {
        let target = person.target();
        // Operators view an organization without being a member.
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

    /// Returns the link to a page: `path` begins after `/console`.
    pub fn link(&self, path: &str) -> String {
        self.console.link(path)
    }

    /// Returns the link to a page of an organization: `path` begins after its id.
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

    /// Returns the link to a page of something in the organization that this page is about: `noun` is the path of
    /// its list, `path` begins after its id.
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

    /// Returns the link to a page of something in the project that this page is about, as [`Self::item_link`].
    pub fn project_item_link(&self, noun: &str, id: impl std::fmt::Display, path: &str) -> String {
        self.project_link(&format!("/{noun}/{id}{path}"))
    }

    /// Returns `true` if the person's role allows this in the page's organization. Actions that aren't allowed
    /// aren't offered.
    pub fn may(&self, action: OrganizationAction) -> bool {
        self.organization.as_ref().is_some_and(|organization| organization.role.allows(action))
    }

    /// Returns `true` if the person's role allows this in the page's project.
    pub fn may_in_project(&self, action: ProjectAction) -> bool {
        self.project.as_ref().is_some_and(|project| project.role.allows(action))
    }

    /// The links of the page's organization.
    pub fn organization_links(&self) -> Vec<NavigationLink> {
        let Some(organization) = &self.organization else { return Vec::new() };
        let rest = self.rest_after(&format!("/organizations/{}", organization.id));
        // A page of a project is in the project's part of the navigation.
        let rest = rest.filter(|_| self.project.is_none());
        self.links(ORGANIZATION, organization.role.as_str(), &self.organization_link(""), rest)
    }

    /// The links of the page's project.
    pub fn project_links(&self) -> Vec<NavigationLink> {
        let (Some(organization), Some(project)) = (&self.organization, &self.project) else {
            return Vec::new();
        };
        let rest = self.rest_after(&format!("/organizations/{}/projects/{}", organization.id, project.id));
        self.links(PROJECT, project.role.as_str(), &self.project_link(""), rest)
    }

    /// Returns `true` if the person runs the installation.
    pub fn is_operator(&self) -> bool {
        self.person.as_ref().is_some_and(|person| person.is_operator)
    }

    /// The links of the installation, on its pages.
    pub fn installation_links(&self) -> Vec<NavigationLink> {
        match self.rest_after("/installation").filter(|_| self.is_operator()) {
            Some(rest) => self.links(INSTALLATION, "", &self.link("/installation"), Some(rest)),
            None => Vec::new(),
        }
    }

    /// Returns the link to a page of something in the installation, as [`Self::item_link`].
    pub fn installation_link(&self, noun: &str, id: impl std::fmt::Display, path: &str) -> String {
        self.link(&format!("/installation/{noun}/{id}{path}"))
    }

    /// Returns `true` if the page is here: `path` begins after `/console`.
    pub fn is_at(&self, path: &str) -> bool {
        self.path == path
    }

    /// The link to a file of the console, by its name.
    pub fn asset(&self, name: &str) -> String {
        self.link(&assets::path(name))
    }

    /// The name of the theme; `system` without one.
    pub fn theme_name(&self) -> &'static str {
        self.theme.map_or("system", Theme::as_str)
    }

    /// The version of the program.
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
