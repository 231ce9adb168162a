//! The bodies that create and change an API key.

use crate::Api;
use input::fields::Fields;
use input::record;
use input::types::{DescriptionText, Integer, ModelIds, Name};
use kernel::clock::Time;
use kernel::patch::Patch;
use keys::api_keys::{Attributes, Change, New, Restrictions};
use keys::rules::api_keys::{check_expiry, unknown_models};
use keys::rules::permissions::Permissions;
use tenants::rules::allowed_ips::AllowedIps;

record! {
    /// A new API key.
    #[derive(Debug)]
    pub struct CreateApiKey in Api {
        /// The name, of 1 to 100 characters.
        name: Name = required,
        /// A description of up to 1,000 characters.
        description: Option<DescriptionText> = optional,
        /// The permissions of the key; all by default.
        permissions: Permissions = or(Permissions::all()),
        /// The time at which the key expires; null if it never expires.
        expires_at: Option<Time> = optional,
        /// The restrictions of the key.
        restrictions: CreateRestrictions = object,
    }
    check(fields) {
        if let (Some(api), Some(Some(at))) = (fields.state(), expires_at)
            && let Err(problem) = check_expiry(at, api.clock.now())
        {
            fields.problem::<()>("expires_at", problem.code, problem.message);
        }
    }
}

/// The maximum number of requests per minute.
type RateLimit = Integer<1, 1_000_000>;
/// The maximum number of tokens per request.
type MaxTokens = Integer<1, 1_000_000_000>;

record! {
    #[derive(Debug)]
    struct CreateRestrictions in Api {
        /// The addresses and networks from which the key may be used; null for any.
        allowed_ips: Option<AllowedIps> = optional,
        /// The maximum number of requests per minute; null for no limit.
        rate_limit: Option<RateLimit> = optional,
        /// The maximum number of tokens per request; null for the model's limit.
        max_tokens: Option<MaxTokens> = optional,
        /// The models that the key may use; null for all.
        models: Option<ModelIds> = optional,
    }
    check(fields) {
        if let Some(Some(ids)) = &models {
            check_models(fields, ids);
        }
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

record! {
    /// A merge patch of a key (RFC 7396), without `expires_at` (docs/contract/api-keys.md#change-a-key).
    #[derive(Debug)]
    pub struct UpdateApiKey in Api {
        /// The name, of 1 to 100 characters.
        name: Option<Name> = change,
        /// A description of up to 1,000 characters.
        description: Patch<DescriptionText> = patch,
        /// The permissions of the key.
        permissions: Option<Permissions> = change,
        /// The restrictions of the key.
        restrictions: Patch<UpdateRestrictions> = patch_object,
    }
}

record! {
    #[derive(Debug)]
    struct UpdateRestrictions in Api {
        /// The addresses and networks from which the key may be used; null for any.
        allowed_ips: Patch<AllowedIps> = patch,
        /// The maximum number of requests per minute; null for no limit.
        rate_limit: Patch<RateLimit> = patch,
        /// The maximum number of tokens per request; null for the model's limit.
        max_tokens: Patch<MaxTokens> = patch,
        /// The models that the key may use; null for all.
        models: Patch<ModelIds> = patch,
    }
    check(fields) {
        if let Some(Patch::Set(ids)) = &models {
            check_models(fields, ids);
        }
    }
}

impl From<CreateApiKey> for New {
    fn from(body: CreateApiKey) -> Self {
        let CreateRestrictions { allowed_ips, rate_limit, max_tokens, models } = body.restrictions;
        Self {
            id: None,
            attributes: Attributes {
                name: body.name.into(),
                description: body.description.map(|text| text.0),
                permissions: body.permissions,
            },
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
        Box::new(move |attributes, restrictions| {
            if let Some(name) = body.name {
                attributes.name = name.into();
            }
            let description = body.description.map(|text| text.0);
            attributes.description = description.onto(attributes.description.take());
            attributes.permissions = body.permissions.unwrap_or(attributes.permissions);
            match body.restrictions {
                Patch::Keep => {}
                Patch::Clear => *restrictions = Restrictions::default(),
                Patch::Set(patch) => *restrictions = patch.onto(std::mem::take(restrictions)),
            }
        })
    }
}

impl UpdateRestrictions {
    /// Returns the restrictions after the patch.
    fn onto(self, before: Restrictions) -> Restrictions {
        Restrictions {
            allowed_ips: self.allowed_ips.onto(before.allowed_ips),
            rate_limit: self.rate_limit.map(|rate| rate.0).onto(before.rate_limit),
            max_tokens: self.max_tokens.map(|tokens| tokens.0).onto(before.max_tokens),
            models: self.models.map(|ids| ids.0).onto(before.models),
        }
    }
}
