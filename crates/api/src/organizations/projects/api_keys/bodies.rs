//! The bodies that create and change an API key.

use crate::Api;
use input::fields::{Fields, Record};
use input::types::{DescriptionText, Integer, ModelIds, Name};
use kernel::clock::Time;
use kernel::patch::Patch;
use keys::api_keys::{Change, New, Restrictions};
use keys::rules::api_keys::{check_expiry, unknown_models};
use keys::rules::permissions::Permissions;
use tenants::rules::allowed_ips::AllowedIps;

/// A new API key.
#[derive(Debug)]
pub struct CreateApiKey {
    name: Name,
    description: Option<DescriptionText>,
    permissions: Permissions,
    expires_at: Option<Time>,
    restrictions: CreateRestrictions,
}

impl Record<Api> for CreateApiKey {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let name = fields.required("name");
        let description = fields.optional("description");
        let permissions = fields.or("permissions", Permissions::all());
        let expires_at = fields.optional::<Time>("expires_at");
        if let (Some(api), Some(Some(at))) = (fields.state(), expires_at)
            && let Err(problem) = check_expiry(at, api.clock.now())
        {
            fields.problem::<()>("expires_at", problem.code, problem.message);
        }
        let restrictions = fields.object("restrictions");
        Some(Self {
            name: name?,
            description: description?,
            permissions: permissions?,
            expires_at: expires_at?,
            restrictions: restrictions?,
        })
    }
}

/// The most requests a minute.
type RateLimit = Integer<1, 1_000_000>;
/// The most tokens of one request.
type MaxTokens = Integer<1, 1_000_000_000>;

#[derive(Debug)]
struct CreateRestrictions {
    allowed_ips: Option<AllowedIps>,
    rate_limit: Option<RateLimit>,
    max_tokens: Option<MaxTokens>,
    models: Option<ModelIds>,
}

impl Record<Api> for CreateRestrictions {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let allowed_ips = fields.optional("allowed_ips");
        let rate_limit = fields.optional("rate_limit");
        let max_tokens = fields.optional("max_tokens");
        let models = fields.optional::<ModelIds>("models");
        if let Some(Some(ids)) = &models {
            check_models(fields, ids);
        }
        Some(Self {
            allowed_ips: allowed_ips?,
            rate_limit: rate_limit?,
            max_tokens: max_tokens?,
            models: models?,
        })
    }
}

/// Checks that all models are in the catalog.
fn check_models(fields: &mut Fields<'_, Api>, ids: &ModelIds) {
    if let Some(api) = fields.state() {
        for (index, problem) in unknown_models(&api.catalog.now(), &ids.0) {
            fields.problem::<()>(&format!("models[{index}]"), problem.code, problem.message);
        }
    }
}

/// A merge patch of a key (RFC 7396), without `expires_at` (docs/contract/api-keys.md#change-a-key).
#[derive(Debug)]
pub struct UpdateApiKey {
    name: Option<Name>,
    description: Patch<DescriptionText>,
    permissions: Option<Permissions>,
    restrictions: Patch<UpdateRestrictions>,
}

impl Record<Api> for UpdateApiKey {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let name = fields.change("name");
        let description = fields.patch("description");
        let permissions = fields.change("permissions");
        let restrictions = fields.patch_object("restrictions");
        Some(Self {
            name: name?,
            description: description?,
            permissions: permissions?,
            restrictions: restrictions?,
        })
    }
}

#[derive(Debug)]
struct UpdateRestrictions {
    allowed_ips: Patch<AllowedIps>,
    rate_limit: Patch<RateLimit>,
    max_tokens: Patch<MaxTokens>,
    models: Patch<ModelIds>,
}

impl Record<Api> for UpdateRestrictions {
    fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let allowed_ips = fields.patch("allowed_ips");
        let rate_limit = fields.patch("rate_limit");
        let max_tokens = fields.patch("max_tokens");
        let models = fields.patch::<ModelIds>("models");
        if let Some(Patch::Set(ids)) = &models {
            check_models(fields, ids);
        }
        Some(Self {
            allowed_ips: allowed_ips?,
            rate_limit: rate_limit?,
            max_tokens: max_tokens?,
            models: models?,
        })
    }
}

impl From<CreateApiKey> for New {
    fn from(body: CreateApiKey) -> Self {
        let CreateRestrictions { allowed_ips, rate_limit, max_tokens, models } = body.restrictions;
        Self {
            name: body.name.into(),
            description: body.description.map(|text| text.0),
            permissions: body.permissions,
            expires_at: body.expires_at,
            restrictions: Restrictions {
                allowed_ips,
                rate_limit: rate_limit.map(|rate| rate.0),
                max_tokens: max_tokens.map(|tokens| tokens.0),
                models: models.map(|ids| ids.0),
            },
        }
    }
}

impl From<UpdateApiKey> for Change {
    fn from(body: UpdateApiKey) -> Self {
        let restrictions = match body.restrictions {
            Patch::Keep => UpdateRestrictions::keep(),
            Patch::Clear => UpdateRestrictions::clear(),
            Patch::Set(restrictions) => restrictions,
        };
        Self {
            name: body.name.map(Into::into),
            description: body.description.map(|text| text.0),
            permissions: body.permissions,
            allowed_ips: restrictions.allowed_ips,
            rate_limit: restrictions.rate_limit.map(|rate| rate.0),
            max_tokens: restrictions.max_tokens.map(|tokens| tokens.0),
            models: restrictions.models.map(|ids| ids.0),
        }
    }
}

impl UpdateRestrictions {
    /// Returns a patch that keeps all restrictions.
    const fn keep() -> Self {
        Self {
            allowed_ips: Patch::Keep,
            rate_limit: Patch::Keep,
            max_tokens: Patch::Keep,
            models: Patch::Keep,
        }
    }

    /// Returns a patch that removes all restrictions.
    const fn clear() -> Self {
        Self {
            allowed_ips: Patch::Clear,
            rate_limit: Patch::Clear,
            max_tokens: Patch::Clear,
            models: Patch::Clear,
        }
    }
}
