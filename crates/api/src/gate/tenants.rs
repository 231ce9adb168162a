//! Access to organizations and everything in them. [`tenants::access`] decides; this module reads the
//! credential and the path.

use crate::Api;
use billing::budgets::{self, RunningBudget};
use kernel::error::{Code, Error};
use kernel::ids::{ApiKeyId, BudgetId, InvitationId, OrganizationId, PaymentId, ProjectId, UserId};
use keys::access::{KeyAction, KeyScope};
use payments::payments::{self as operations, Payment};
use tenants::access::{
    CallerScope, FoundOrganization, InvitationScope, KeyKind, MemberScope, OrgScope, PersonScope,
    ProjectMemberScope, ProjectPath, ProjectScope,
};
use tenants::roles::{OrganizationAction, OrganizationRole, ProjectAction, ProjectRole};

use super::bearer::{CREDENTIAL_CODES, authenticate_manager};
use super::{Access, AccessDoc, Call, trail};

/// Returns the organization's id in the path.
///
/// # Errors
/// 404 if it is malformed.
pub(super) fn organization_id(call: &Call) -> Result<OrganizationId, Error> {
    Ok(OrganizationId::parse(call.path("organization_id")).ok_or(Code::OrganizationNotFound)?)
}

fn place(call: &Call) -> Result<ProjectPath, Error> {
    let organization_id = organization_id(call)?;
    Ok(ProjectPath { organization_id, project_id: ProjectId::parse(call.path("project_id")) })
}

/// The additional error codes for API keys on management endpoints.
const KEY_CODES: &[Code] = &[
    Code::AccountDisabled,
    Code::ManagementNotAllowed,
    Code::ApiKeyManagementDisabled,
    Code::OutsideApiKeyScope,
];

/// Describes an access that requires a role in the organization.
pub(super) fn organization_doc(action: OrganizationAction, text: impl Into<String>) -> AccessDoc {
    let roles = [OrganizationRole::Owner, OrganizationRole::Admin, OrganizationRole::Member];
    let roles = roles.into_iter().filter(|role| role.allows(action)).map(OrganizationRole::as_str);
    doc(text, KeyKind::Unrestricted).roles("organization", roles.collect())
}

/// Describes an access that requires a role in the project.
fn project_doc(action: ProjectAction, with: KeyKind, text: impl Into<String>) -> AccessDoc {
    doc(text, with).roles("project", project_roles(action))
}

/// Returns the roles in a project that allow an action.
pub(super) fn project_roles(action: ProjectAction) -> Vec<&'static str> {
    use ProjectRole::{Admin, Developer, Owner, Viewer};
    let roles = [Owner, Admin, Developer, Viewer].into_iter();
    roles.filter(|role| role.allows(action)).map(ProjectRole::as_str).collect()
}

fn doc(text: impl Into<String>, with: KeyKind) -> AccessDoc {
    let codes = KEY_CODES.iter().filter(|code| with != KeyKind::Any || **code != Code::ManagementNotAllowed);
    let codes: Vec<_> = codes.chain(&[Code::InsufficientRole, Code::SignOnRequired]).copied().collect();
    AccessDoc::new(Some("bearer"), text).refuses(CREDENTIAL_CODES).refuses(&codes)
}

fn member_id(call: &Call) -> Option<UserId> {
    UserId::parse(call.path("member_id"))
}

/// The access with an access token or an API key, regardless of roles.
#[derive(Clone, Copy, Debug)]
pub struct Bearer {
    /// The kind of keys that are admitted.
    pub with: KeyKind,
}

impl Access<Api> for Bearer {
    type Scope = CallerScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<CallerScope, Error> {
        CallerScope::admit(authenticate_manager(api, call).await?, self.with)
    }
    fn describe(&self) -> AccessDoc {
        let text = match self.with {
            KeyKind::Any => "access token or API key",
            KeyKind::Unrestricted => "access token, or API key without limits on models and tokens",
        };
        let codes: &[Code] = match self.with {
            KeyKind::Any => &[Code::AccountDisabled, Code::ApiKeyManagementDisabled],
            KeyKind::Unrestricted => {
                &[Code::AccountDisabled, Code::ManagementNotAllowed, Code::ApiKeyManagementDisabled]
            }
        };
        AccessDoc::new(Some("bearer"), text).refuses(CREDENTIAL_CODES).refuses(codes)
    }
}

/// The access with an access token, for operations outside of any API key's organization.
#[derive(Clone, Copy, Debug)]
pub struct Person;

impl Access<Api> for Person {
    type Scope = PersonScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<PersonScope, Error> {
        PersonScope::admit(&authenticate_manager(api, call).await?, trail(call))
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("accessToken"), "access token (403 for API keys)")
            .refuses(CREDENTIAL_CODES)
            .refuses(&[Code::AccountDisabled, Code::OutsideApiKeyScope])
    }
}

/// The access to the organization in the path, for this action.
#[derive(Clone, Copy, Debug)]
pub struct Org(pub OrganizationAction);

impl Access<Api> for Org {
    type Scope = OrgScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OrgScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        OrgScope::admit(&api.tenants, organization_id(call)?, caller, self.0, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        organization_doc(self.0, format!("organization: {:?}", self.0))
    }
}

/// The access to the organization in the path, for this action, only with an access token: an API key must
/// not charge a card.
#[derive(Clone, Copy, Debug)]
pub struct OrgInPerson(pub OrganizationAction);

impl Access<Api> for OrgInPerson {
    type Scope = OrgScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OrgScope, Error> {
        let scope = Org(self.0).admit(api, call).await?;
        if scope.caller().key.is_some() {
            let message = "API keys can't do this. Use an access token.";
            return Err(Error::new(Code::ManagementNotAllowed).message(message));
        }
        Ok(scope)
    }
    fn describe(&self) -> AccessDoc {
        organization_doc(
            self.0,
            format!("organization: {:?}, only with an access token (403 for API keys)", self.0),
        )
    }
}

/// The access to a budget of the organization in the path, for this action.
#[derive(Clone, Copy, Debug)]
pub struct OrgBudget(pub OrganizationAction);

/// The right to an action on a budget.
#[derive(Clone, Debug)]
pub struct BudgetScope {
    organization: OrgScope,
    budget: RunningBudget,
}

impl BudgetScope {
    /// Returns the right to the action on the budget's organization.
    pub fn organization(&self) -> &OrgScope {
        &self.organization
    }
    pub fn id(&self) -> BudgetId {
        self.budget.budget.id
    }
    /// Returns the budget, as read by `admit`.
    pub fn budget(&self) -> &RunningBudget {
        &self.budget
    }
    /// Returns the budget, as read by `admit`.
    pub fn into_budget(self) -> RunningBudget {
        self.budget
    }
}

impl Access<Api> for OrgBudget {
    type Scope = BudgetScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<BudgetScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let organization_id = organization_id(call)?;
        let found = FoundOrganization::find(&api.tenants, organization_id, caller).await?;
        let id = BudgetId::parse(call.path("budget_id"));
        let budget = budgets::read(&api.billing, organization_id, id).await?;
        Ok(BudgetScope { organization: found.admit(self.0, trail(call))?, budget })
    }
    fn describe(&self) -> AccessDoc {
        Org(self.0).describe()
    }
}

/// The access to a payment of the organization in the path, for this action.
#[derive(Clone, Copy, Debug)]
pub struct OrgPayment(pub OrganizationAction);

/// The right to read a payment.
#[derive(Clone, Debug)]
pub struct PaymentScope {
    payment: Payment,
}

impl PaymentScope {
    /// Returns the payment, as read by `admit`.
    pub fn into_payment(self) -> Payment {
        self.payment
    }
}

impl Access<Api> for OrgPayment {
    type Scope = PaymentScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<PaymentScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let organization_id = organization_id(call)?;
        let found = FoundOrganization::find(&api.tenants, organization_id, caller).await?;
        let id = PaymentId::parse(call.path("payment_id"));
        let payment = operations::find(&api.payments, organization_id, id).await?;
        found.admit(self.0, trail(call))?;
        Ok(PaymentScope { payment })
    }
    fn describe(&self) -> AccessDoc {
        Org(self.0).describe()
    }
}

/// The access to an invitation of the organization in the path, for callers who may invite members.
#[derive(Clone, Copy, Debug)]
pub struct OrgInvitation;

impl Access<Api> for OrgInvitation {
    type Scope = InvitationScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<InvitationScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let invitation_id = InvitationId::parse(call.path("invitation_id"));
        InvitationScope::admit(&api.tenants, organization_id(call)?, invitation_id, caller, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        Org(OrganizationAction::InviteMembers).describe()
    }
}

/// The access to a member of the organization in the path.
#[derive(Clone, Copy, Debug)]
pub enum OrgMember {
    /// By a caller who may manage members.
    Managed,
    /// By a caller who may manage members, or by the member, who leaves.
    ManagedOrLeaving,
}

impl Access<Api> for OrgMember {
    type Scope = MemberScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<MemberScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let (organization_id, may_leave) = (organization_id(call)?, matches!(self, Self::ManagedOrLeaving));
        MemberScope::admit(&api.tenants, organization_id, member_id(call), caller, may_leave, trail(call))
            .await
    }
    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Managed => "organization: ManageMembers",
            Self::ManagedOrLeaving => "organization: ManageMembers, or the member's own access token",
        };
        organization_doc(OrganizationAction::ManageMembers, text)
    }
}

/// The access to the project in the path.
#[derive(Clone, Copy, Debug)]
pub struct Project {
    pub action: ProjectAction,
    /// The kind of keys that are admitted.
    pub with: KeyKind,
}

impl Project {
    /// Returns the access for users, and for API keys without limits on models and tokens.
    pub const fn to(action: ProjectAction) -> Self {
        Self { action, with: KeyKind::Unrestricted }
    }
}

impl Access<Api> for Project {
    type Scope = ProjectScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ProjectScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        ProjectScope::admit(&api.tenants, place(call)?, caller, (self.action, self.with), trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        project_doc(self.action, self.with, format!("project: {:?}", self.action))
    }
}

/// The access to a member of the project in the path.
#[derive(Clone, Copy, Debug)]
pub enum ProjectMember {
    /// By a caller who may manage members.
    Managed,
    /// By a caller who may manage members, or by the member, who leaves.
    ManagedOrLeaving,
}

impl Access<Api> for ProjectMember {
    type Scope = ProjectMemberScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<ProjectMemberScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let (place, may_leave) = (place(call)?, matches!(self, Self::ManagedOrLeaving));
        ProjectMemberScope::admit(&api.tenants, place, member_id(call), caller, may_leave, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Managed => "project: ManageMembers",
            Self::ManagedOrLeaving => "project: ManageMembers, or the member's own access token",
        };
        project_doc(ProjectAction::ManageMembers, KeyKind::Unrestricted, text)
    }
}

impl Access<Api> for KeyAction {
    type Scope = KeyScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<KeyScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let api_key_id = ApiKeyId::parse(call.path("key_id"));
        KeyScope::admit(&api.keys, place(call)?, api_key_id, caller, *self, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        let text = match self {
            Self::Update | Self::Rotate => {
                "project: ManageApiKeys, with at least the roles of the key's creator"
            }
            Self::Read | Self::EndRotation | Self::Delete => "project: ManageApiKeys",
        };
        project_doc(ProjectAction::ManageApiKeys, KeyKind::Unrestricted, text)
    }
}
