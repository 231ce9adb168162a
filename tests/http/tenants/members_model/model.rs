//! The model of one organization, its projects and members, expressed differently from the code: roles are
//! heights, and managers give and take roles up to their own height.

use std::sync::Arc;

pub const PEOPLE: usize = 10;

/// The height of a role; 0 without a role.
pub type Height = usize;
pub const MEMBER: Height = 1;
pub const ADMIN: Height = 2;
pub const OWNER: Height = 3;
pub const ORGANIZATION_ROLES: [&str; 4] = ["", "member", "admin", "owner"];
pub const VIEWER: Height = 1;
pub const PROJECT_ADMIN: Height = 3;
pub const PROJECT_OWNER: Height = 4;
pub const PROJECT_ROLES: [&str; 5] = ["", "viewer", "developer", "admin", "owner"];

/// The project whose keys make calls, and which is never deleted. The other projects are created and deleted
/// under the other numbers.
pub const HOME: usize = 0;
pub const SLOTS: usize = 3;

/// A call's operation. Users and projects are numbers.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Invite {
        guest: usize,
        role: Option<Height>,
    },
    /// Follows the newest link of any recipient, or the link that is this many links older.
    FollowLink {
        older: usize,
    },
    /// Logs in.
    ProveAddress,
    ChangeRole {
        member: usize,
        role: Height,
    },
    /// Removes a member. Callers who remove themselves without a key leave.
    Remove {
        member: usize,
    },
    CreateProject {
        slot: usize,
        public: bool,
    },
    DeleteProject {
        slot: usize,
    },
    AddToProject {
        slot: usize,
        person: usize,
        role: Height,
    },
    ChangeProjectRole {
        slot: usize,
        person: usize,
        role: Height,
    },
    RemoveFromProject {
        slot: usize,
        person: usize,
    },
    ChangeSettings {
        default_role: Height,
        allow_public: bool,
    },
    DeleteOrganization,
}

/// A request: the caller, the credential, and the ids that its numbers had at that time.
#[derive(Clone, Debug)]
pub struct Call {
    pub by: usize,
    pub with_key: bool,
    pub step: Step,
    pub project: Option<Arc<str>>,
    pub invitation: Option<Arc<str>>,
}

/// A status and a code.
pub type Refusal = (u16, &'static str);

const FORBIDDEN: Refusal = (403, "insufficient_role");
/// The page for a link that no longer works has no code.
const DEAD_LINK: Refusal = (400, "");

#[derive(Clone, Debug)]
pub struct Project {
    pub id: Arc<str>,
    pub slot: usize,
    pub public: bool,
    pub roles: [Height; PEOPLE],
}

#[derive(Clone, Debug)]
pub struct Invitation {
    pub id: Arc<str>,
    pub guest: usize,
    pub role: Height,
    pub sender: usize,
}

/// The organization between two commits.
#[derive(Clone, Debug)]
pub struct State {
    pub exists: bool,
    pub roles: [Height; PEOPLE],
    pub default_role: Height,
    pub allow_public: bool,
    pub projects: Vec<Project>,
    /// The open invitations. An invitation may have ended without an audit entry if its guest became a member
    /// in another way.
    pub invitations: Vec<Invitation>,
}

impl State {
    /// Returns whether a call changes something, or the reason why it is refused.
    pub fn decide(&self, call: &Call) -> Result<bool, Refusal> {
        let by = call.by;
        match call.step {
            Step::FollowLink { .. } => {
                let open = self.invitations.iter().find(|open| Some(&open.id) == call.invitation.as_ref());
                if open.is_some_and(|open| self.is_acceptable(open)) { Ok(true) } else { Err(DEAD_LINK) }
            }
            Step::ProveAddress => {
                Ok(self.invitations.iter().any(|open| open.guest == by && self.is_acceptable(open)))
            }
            Step::Invite { guest, role } => {
                self.manages(by)?;
                let role = role.unwrap_or(self.default_role);
                gives(self.roles[by], role)?;
                check_key_makes_no_owner(call, role == OWNER)?;
                if self.roles[guest] > 0 {
                    return Err((409, "already_member"));
                }
                if self.invitations.iter().any(|open| open.guest == guest) {
                    return Err((409, "already_invited"));
                }
                Ok(true)
            }
            Step::ChangeRole { member, role } => {
                self.is_member(member)?;
                self.manages(by)?;
                gives(self.roles[by], self.roles[member])?;
                gives(self.roles[by], role)?;
                check_key_makes_no_owner(call, role == OWNER && self.roles[member] != OWNER)?;
                if role < OWNER {
                    self.check_not_last_owner(member)?;
                }
                Ok(role != self.roles[member])
            }
            Step::Remove { member } => {
                self.is_member(member)?;
                if member != by || call.with_key {
                    self.manages(by)?;
                    gives(self.roles[by], self.roles[member])?;
                }
                self.check_not_last_owner(member)?;
                Ok(true)
            }
            Step::CreateProject { slot, public } => {
                self.manages(by)?;
                if public && !self.allow_public {
                    return Err((400, "public_projects_not_allowed"));
                }
                if self.projects.iter().any(|project| project.slot == slot) {
                    return Err((409, "name_taken"));
                }
                Ok(true)
            }
            Step::DeleteProject { .. } => {
                let project = self.project(call)?;
                confine(call, project)?;
                at_least(self.effective(project, by), PROJECT_OWNER)?;
                Ok(true)
            }
            Step::AddToProject { person, role, .. } => {
                let project = self.project(call)?;
                confine(call, project)?;
                let own = self.effective(project, by);
                at_least(own, PROJECT_ADMIN)?;
                at_least(own, role)?;
                check_key_makes_no_owner(call, role == PROJECT_OWNER)?;
                if self.roles[person] == 0 {
                    at_least(self.roles[by], ADMIN)?;
                }
                if project.roles[person] > 0 { Err((409, "already_member")) } else { Ok(true) }
            }
            Step::ChangeProjectRole { person, role, .. } => {
                let project = self.project(call)?;
                in_project(project, person)?;
                confine(call, project)?;
                let own = self.effective(project, by);
                at_least(own, PROJECT_ADMIN)?;
                at_least(own, role.max(project.roles[person]))?;
                check_key_makes_no_owner(
                    call,
                    role == PROJECT_OWNER && project.roles[person] != PROJECT_OWNER,
                )?;
                Ok(role != project.roles[person])
            }
            Step::RemoveFromProject { person, .. } => {
                let project = self.project(call)?;
                in_project(project, person)?;
                confine(call, project)?;
                if person != by || call.with_key {
                    let own = self.effective(project, by);
                    at_least(own, PROJECT_ADMIN)?;
                    at_least(own, project.roles[person])?;
                }
                Ok(true)
            }
            Step::ChangeSettings { default_role, allow_public } => {
                self.manages(by)?;
                Ok((default_role, allow_public) != (self.default_role, self.allow_public))
            }
            Step::DeleteOrganization => {
                self.is_there()?;
                at_least(self.roles[by], OWNER)?;
                Ok(true)
            }
        }
    }

    /// Returns whether this answer fits a call that left no entry in the audit trail.
    pub fn explains(&self, call: &Call, status: u16, code: &str) -> bool {
        // If the guest became a member in another way, the invitation ends without an entry.
        if matches!(call.step, Step::FollowLink { .. }) && self.roles[call.by] > 0 {
            return status == 200 || (status, code) == DEAD_LINK;
        }
        // A key ends with its organization, immediately or when the server reads the feed again.
        if call.with_key && !self.exists && status == 401 {
            return true;
        }
        match self.decide(call) {
            Ok(changes) => status == 200 && !changes,
            Err(refusal) => (status, code) == refusal,
        }
    }

    /// Applies the change of an audit entry; returns an error if the change was not allowed.
    pub fn apply(
        &mut self,
        call: &Call,
        action: &str,
        target: &str,
        people: &[String; PEOPLE],
    ) -> Result<(), String> {
        match self.decide(call) {
            Ok(true) => {}
            other => return Err(format!("the model expects {other:?}")),
        }
        let due = self.write(call, action, target, people).ok_or("an entry that doesn't match the call")?;
        if due != target {
            return Err(format!("the entry is about {target}, not {due}"));
        }
        if self.exists && !self.roles.contains(&OWNER) {
            return Err("the organization has no owner".into());
        }
        Ok(())
    }

    /// Returns the target that the entry should have.
    fn write(
        &mut self,
        call: &Call,
        action: &str,
        target: &str,
        people: &[String; PEOPLE],
    ) -> Option<String> {
        let by = call.by;
        let in_project = |person: usize| Some(format!("{}/{}", call.project.as_ref()?, people[person]));
        match (call.step, action) {
            (Step::Invite { guest, role }, "invitation.created") => {
                let role = role.unwrap_or(self.default_role);
                self.invitations.push(Invitation { id: target.into(), guest, role, sender: by });
                Some(target.into())
            }
            (Step::FollowLink { .. } | Step::ProveAddress, "invitation.accepted") => {
                let index = self.invitations.iter().position(|open| open.guest == by)?;
                let open = self.invitations.swap_remove(index);
                self.roles[by] = open.role;
                Some(open.id.to_string())
            }
            (Step::ChangeRole { member, role }, "organization_member.role_changed") => {
                self.roles[member] = role;
                let beyond = |role: Height| gives(self.roles[member], role).is_err();
                self.invitations.retain(|open| open.sender != member || !beyond(open.role));
                Some(people[member].clone())
            }
            (Step::Remove { member }, "organization_member.removed") => {
                self.roles[member] = 0;
                self.invitations.retain(|open| open.sender != member && open.guest != member);
                for project in &mut self.projects {
                    project.roles[member] = 0;
                }
                Some(people[member].clone())
            }
            (Step::CreateProject { slot, public }, "project.created") => {
                let mut roles = [0; PEOPLE];
                roles[by] = PROJECT_OWNER;
                self.projects.push(Project { id: target.into(), slot, public, roles });
                Some(target.into())
            }
            (Step::DeleteProject { .. }, "project.deleted") => {
                self.projects.retain(|project| Some(&project.id) != call.project.as_ref());
                call.project.as_deref().map(str::to_owned)
            }
            (Step::AddToProject { person, .. }, "organization_member.added") if self.roles[person] == 0 => {
                self.roles[person] = self.default_role;
                Some(people[person].clone())
            }
            (Step::AddToProject { person, role, .. }, "project_member.added") if self.roles[person] > 0 => {
                self.project_mut(call)?.roles[person] = role;
                in_project(person)
            }
            (Step::ChangeProjectRole { person, role, .. }, "project_member.role_changed") => {
                self.project_mut(call)?.roles[person] = role;
                in_project(person)
            }
            (Step::RemoveFromProject { person, .. }, "project_member.removed") => {
                self.project_mut(call)?.roles[person] = 0;
                in_project(person)
            }
            (Step::ChangeSettings { default_role, allow_public }, "organization.changed") => {
                (self.default_role, self.allow_public) = (default_role, allow_public);
                Some(target.into())
            }
            (Step::DeleteOrganization, "organization.deleted") => {
                self.exists = false;
                self.roles = [0; PEOPLE];
                self.projects.clear();
                self.invitations.clear();
                Some(target.into())
            }
            _ => None,
        }
    }

    /// Returns a user's effective role in a project.
    pub fn effective(&self, project: &Project, person: usize) -> Height {
        let open = self.allow_public && project.public;
        let by_organization = match self.roles[person] {
            ADMIN.. => PROJECT_OWNER,
            MEMBER if open => VIEWER,
            _ => 0,
        };
        project.roles[person].max(by_organization)
    }

    fn is_there(&self) -> Result<(), Refusal> {
        if self.exists { Ok(()) } else { Err((404, "organization_not_found")) }
    }

    fn is_member(&self, person: usize) -> Result<(), Refusal> {
        self.is_there()?;
        if self.roles[person] > 0 { Ok(()) } else { Err((404, "member_not_found")) }
    }

    fn manages(&self, person: usize) -> Result<(), Refusal> {
        self.is_there()?;
        at_least(self.roles[person], ADMIN)
    }

    /// Refuses to remove or demote the last owner.
    fn check_not_last_owner(&self, member: usize) -> Result<(), Refusal> {
        let others = (0..PEOPLE).any(|person| person != member && self.roles[person] == OWNER);
        if self.roles[member] == OWNER && !others { Err((409, "last_owner")) } else { Ok(()) }
    }

    /// Returns `true` if accepting the invitation makes its guest a member.
    fn is_acceptable(&self, open: &Invitation) -> bool {
        self.roles[open.guest] == 0 && gives(self.roles[open.sender], open.role).is_ok()
    }

    fn project(&self, call: &Call) -> Result<&Project, Refusal> {
        self.is_there()?;
        let found = self.projects.iter().find(|project| Some(&project.id) == call.project.as_ref());
        found.ok_or((404, "project_not_found"))
    }

    fn project_mut(&mut self, call: &Call) -> Option<&mut Project> {
        self.projects.iter_mut().find(|project| Some(&project.id) == call.project.as_ref())
    }
}

fn at_least(own: Height, needed: Height) -> Result<(), Refusal> {
    if own >= needed { Ok(()) } else { Err(FORBIDDEN) }
}

/// Checks that this height may give and take this role in the organization.
fn gives(own: Height, role: Height) -> Result<(), Refusal> {
    at_least(own, role.max(ADMIN))
}

fn in_project(project: &Project, person: usize) -> Result<(), Refusal> {
    if project.roles[person] > 0 { Ok(()) } else { Err((404, "member_not_found")) }
}

/// Refuses a key that would make an owner.
fn check_key_makes_no_owner(call: &Call, makes_owner: bool) -> Result<(), Refusal> {
    if call.with_key && makes_owner { Err((403, "key_exceeds_caller")) } else { Ok(()) }
}

/// Refuses a key outside its own project.
fn confine(call: &Call, project: &Project) -> Result<(), Refusal> {
    if call.with_key && project.slot != HOME { Err((403, "outside_api_key_scope")) } else { Ok(()) }
}
