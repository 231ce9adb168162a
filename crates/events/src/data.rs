//! The data of events: ids, states and exact amounts, without names and addresses of people. Receivers fetch
//! anything else from the API by these ids (docs/contract/webhooks.md#events).

use serde::Serialize;

use kernel::clock::Time;
use kernel::ids::{
    ApiKeyId, BudgetId, CreditId, InvoiceId, OrganizationId, PaymentId, ProjectId, UserId, WebhookId,
};
use kernel::money::{Nano, Pico};

use crate::EventType;

/// The data of an event.
pub trait EventData: Serialize + Sync {
    /// The type of the event.
    fn event_type(&self) -> EventType;
    /// The organization whose webhooks receive it.
    fn organization_id(&self) -> OrganizationId;
}

/// A change of an invoice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvoiceChange {
    Created,
    Paid,
    Voided,
}

/// The data of `invoice.created`, `invoice.paid` and `invoice.voided`.
#[derive(Clone, Debug, Serialize)]
pub struct InvoiceChanged {
    #[serde(skip)]
    pub change: InvoiceChange,
    pub organization_id: OrganizationId,
    pub invoice_id: InvoiceId,
    /// The number on the invoice.
    pub number: i64,
    /// The status after the change, as named in the API.
    pub status: &'static str,
    /// The billed month, such as `2026-01`.
    pub month: String,
    /// ISO 4217 code.
    pub currency: String,
    pub amount: Nano,
}

impl EventData for InvoiceChanged {
    fn event_type(&self) -> EventType {
        match self.change {
            InvoiceChange::Created => EventType::InvoiceCreated,
            InvoiceChange::Paid => EventType::InvoicePaid,
            InvoiceChange::Voided => EventType::InvoiceVoided,
        }
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `credit.added`.
#[derive(Clone, Debug, Serialize)]
pub struct CreditAdded {
    pub organization_id: OrganizationId,
    pub credit_id: CreditId,
    /// The kind of the credit, as named in the API.
    pub kind: &'static str,
    /// ISO 4217 code.
    pub currency: String,
    pub amount: Nano,
    pub expires_at: Option<Time>,
}

impl EventData for CreditAdded {
    fn event_type(&self) -> EventType {
        EventType::CreditAdded
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `credit.expired`.
#[derive(Clone, Debug, Serialize)]
pub struct CreditExpired {
    pub organization_id: OrganizationId,
    pub credit_id: CreditId,
    /// ISO 4217 code.
    pub currency: String,
    /// The expired amount of the credit.
    pub amount: Nano,
}

impl EventData for CreditExpired {
    fn event_type(&self) -> EventType {
        EventType::CreditExpired
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// A change of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PaymentChange {
    Succeeded,
    Failed,
    ActionRequired,
    Refunded,
    Disputed,
}

/// The data of `payment.succeeded`, `payment.failed`, `payment.action_required`, `payment.refunded` and
/// `payment.disputed`.
#[derive(Clone, Debug, Serialize)]
pub struct PaymentChanged {
    #[serde(skip)]
    pub change: PaymentChange,
    pub organization_id: OrganizationId,
    pub payment_id: PaymentId,
    /// The purpose of the payment, as named in the API.
    pub kind: &'static str,
    /// The invoice that the payment pays.
    pub invoice_id: Option<InvoiceId>,
    /// The status after the change, as named in the API.
    pub status: &'static str,
    /// ISO 4217 code.
    pub currency: String,
    pub amount: Nano,
    /// The tax added to the amount, if the payment is taxed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tax: Option<Nano>,
    /// The sum of amount and tax, if the payment is taxed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Nano>,
    /// The sum of its refunds.
    pub refunded: Nano,
    /// The sum that banks hold because of disputes.
    pub disputed: Nano,
    /// The reason for the failure.
    pub failure_code: Option<String>,
}

impl EventData for PaymentChanged {
    fn event_type(&self) -> EventType {
        match self.change {
            PaymentChange::Succeeded => EventType::PaymentSucceeded,
            PaymentChange::Failed => EventType::PaymentFailed,
            PaymentChange::ActionRequired => EventType::PaymentActionRequired,
            PaymentChange::Refunded => EventType::PaymentRefunded,
            PaymentChange::Disputed => EventType::PaymentDisputed,
        }
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `credit.expiring`.
#[derive(Clone, Debug, Serialize)]
pub struct CreditExpiring {
    pub organization_id: OrganizationId,
    pub credit_id: CreditId,
    /// ISO 4217 code.
    pub currency: String,
    /// The remaining amount of the credit.
    pub amount: Nano,
    pub expires_at: Time,
}

impl EventData for CreditExpiring {
    fn event_type(&self) -> EventType {
        EventType::CreditExpiring
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The kind of a balance event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BalanceChange {
    Low,
    Depleted,
    Recovered,
}

/// The data of `balance.low`, `balance.depleted` and `balance.recovered`.
#[derive(Clone, Debug, Serialize)]
pub struct BalanceChanged {
    #[serde(skip)]
    pub change: BalanceChange,
    pub organization_id: OrganizationId,
    /// ISO 4217 code.
    pub currency: String,
    /// The posted balance, not reduced by reservations.
    pub balance: Nano,
    /// The amount by which the balance may go below zero.
    pub credit_limit: Nano,
    /// The threshold of the alert; `None` without an alert.
    pub alert_below: Option<Nano>,
}

impl EventData for BalanceChanged {
    fn event_type(&self) -> EventType {
        match self.change {
            BalanceChange::Low => EventType::BalanceLow,
            BalanceChange::Depleted => EventType::BalanceDepleted,
            BalanceChange::Recovered => EventType::BalanceRecovered,
        }
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `auto_top_up.paused`.
#[derive(Clone, Debug, Serialize)]
pub struct AutoTopUpPaused {
    pub organization_id: OrganizationId,
    /// The reason, as named in the API.
    pub reason: &'static str,
    /// The time at which the top-up resumes automatically.
    pub resumes_at: Option<Time>,
}

impl EventData for AutoTopUpPaused {
    fn event_type(&self) -> EventType {
        EventType::AutoTopUpPaused
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `budget.threshold_reached` and `budget.exceeded`.
#[derive(Clone, Debug, Serialize)]
pub struct BudgetReached {
    pub organization_id: OrganizationId,
    pub budget_id: BudgetId,
    /// The start of the period; `None` for a budget without a period.
    pub period_start: Option<Time>,
    /// The threshold in percent of the limit; `None` if the limit is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<i64>,
    /// ISO 4217 code.
    pub currency: String,
    pub limit: Nano,
    /// The list price of the usage in the period.
    pub spent: Pico,
}

impl EventData for BudgetReached {
    fn event_type(&self) -> EventType {
        match self.threshold {
            Some(_) => EventType::BudgetThresholdReached,
            None => EventType::BudgetExceeded,
        }
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// A change of an API key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApiKeyChange {
    Created,
    Rotated,
    Deleted,
}

/// The data of `api_key.created`, `api_key.rotated` and `api_key.deleted`.
#[derive(Clone, Debug, Serialize)]
pub struct ApiKeyChanged {
    #[serde(skip)]
    pub change: ApiKeyChange,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub api_key_id: ApiKeyId,
}

impl EventData for ApiKeyChanged {
    fn event_type(&self) -> EventType {
        match self.change {
            ApiKeyChange::Created => EventType::ApiKeyCreated,
            ApiKeyChange::Rotated => EventType::ApiKeyRotated,
            ApiKeyChange::Deleted => EventType::ApiKeyDeleted,
        }
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `api_key.expiring`.
#[derive(Clone, Debug, Serialize)]
pub struct ApiKeyExpiring {
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub api_key_id: ApiKeyId,
    pub expires_at: Time,
}

impl EventData for ApiKeyExpiring {
    fn event_type(&self) -> EventType {
        EventType::ApiKeyExpiring
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `member.added`.
#[derive(Clone, Debug, Serialize)]
pub struct MemberAdded {
    pub organization_id: OrganizationId,
    pub user_id: UserId,
    /// The role in the organization, as named in the API.
    pub role: &'static str,
}

impl EventData for MemberAdded {
    fn event_type(&self) -> EventType {
        EventType::MemberAdded
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `member.removed`.
#[derive(Clone, Debug, Serialize)]
pub struct MemberRemoved {
    pub organization_id: OrganizationId,
    pub user_id: UserId,
}

impl EventData for MemberRemoved {
    fn event_type(&self) -> EventType {
        EventType::MemberRemoved
    }
    fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
}

/// The data of `webhook.test`.
#[derive(Clone, Debug, Serialize)]
pub struct WebhookTest {
    /// `None` for a webhook of the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<OrganizationId>,
    pub webhook_id: WebhookId,
}
