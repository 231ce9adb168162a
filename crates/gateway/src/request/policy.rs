//! The fields, tools and references that are forwarded to an upstream (docs/contract/gateway.md#fields).
//!
//! The operator's own servers get every field, except for fields that cost more than the reported usage, give
//! a call precedence over other calls, or refer to hosts, files or other requests. A provider (kind `openai`)
//! gets only fields that are known to cost nothing extra, because the operator pays its bill. An upstream's
//! `allow_fields` and `deny_fields` override these rules, and `deny_fields` take precedence.

use kernel::error::Error;

use super::ModelRequest;
use super::field_lists::{OWN_REFUSED, passes_to_provider};
use super::survey::Scheme;
use super::tools::Class;
use crate::dialect::Dialect;
use crate::names::{is_like, unsupported};
use catalog::{MediaUrls, Upstream};

/// The entry for a name in an upstream's lists.
enum Listed {
    Allowed,
    Denied,
    Unlisted,
}

fn look_up(upstream: &Upstream, name: &str) -> Listed {
    // A denied field is refused in any spelling; an allowed field must be spelled as in the list.
    if upstream.deny_fields.iter().any(|denied| is_like(name, denied)) {
        return Listed::Denied;
    }
    if upstream.allow_fields.iter().any(|allowed| allowed == name) {
        return Listed::Allowed;
    }
    Listed::Unlisted
}

/// Returns `true` if beta names of Anthropic's API are forwarded to an upstream. Betas of a provider may cost
/// more than the reported usage, so the operator has to allow them as the field `anthropic_beta`.
pub(crate) fn gets_betas(upstream: &Upstream) -> bool {
    match look_up(upstream, "anthropic_beta") {
        Listed::Denied => false,
        Listed::Allowed => true,
        Listed::Unlisted => !Dialect::of(upstream.kind).is_provider,
    }
}

impl ModelRequest {
    /// Fails if a field, a tool or a reference of this request mustn't be forwarded to the upstream.
    ///
    /// # Errors
    /// 400 `unsupported_parameter`, with the name.
    pub fn check_fields(&self, upstream: &Upstream) -> Result<(), Error> {
        let is_provider = Dialect::of(upstream.kind).is_provider;
        for name in &self.survey.fields {
            let is_refused = match look_up(upstream, name) {
                Listed::Denied => true,
                Listed::Allowed => false,
                Listed::Unlisted if is_provider => !passes_to_provider(self.operation, name),
                Listed::Unlisted => OWN_REFUSED.contains(&name.as_ref()),
            };
            if is_refused {
                return Err(refused(name));
            }
        }
        for found in &self.survey.uses {
            let is_refused = match look_up(upstream, &found.name) {
                Listed::Denied => true,
                Listed::Allowed => false,
                Listed::Unlisted => match found.class {
                    Class::ClientTool => false,
                    Class::HostedTool | Class::Reference => true,
                    Class::OfferedSearch | Class::UnknownTool | Class::Costly => is_provider,
                },
            };
            if is_refused {
                return Err(refused(&found.name));
            }
        }
        self.check_media(upstream)
    }

    /// Fails for a media URL that the gateway neither loads nor forwards to the upstream.
    fn check_media(&self, upstream: &Upstream) -> Result<(), Error> {
        for media in &self.survey.media {
            let message = match (media.scheme, upstream.media_urls) {
                (Scheme::Web, MediaUrls::Fetch | MediaUrls::Pass) | (Scheme::Other, MediaUrls::Pass) => {
                    continue;
                }
                (Scheme::Web, MediaUrls::Refuse) => {
                    "This model takes images and other media inline only: send a data URL."
                }
                (Scheme::Other | Scheme::Local, _) => {
                    "The address of an image or other media must be a URL with `https` or `http`, or a data URL."
                }
            };
            return Err(unsupported(media.within, message));
        }
        Ok(())
    }

    /// Returns `true` if the upstream may add to the prompt, such as results of a tool that it runs or stored
    /// content. The operator must have allowed the tool or reference by name.
    pub(crate) fn is_added_to(&self, upstream: &Upstream) -> bool {
        let adds = |class| matches!(class, Class::HostedTool | Class::OfferedSearch | Class::Reference);
        let mut added = self.survey.uses.iter().filter(|found| adds(found.class));
        added.any(|found| matches!(look_up(upstream, &found.name), Listed::Allowed))
    }

    /// Returns `true` if the request is forwarded without the web searches that it offers to the model. The
    /// operator's own servers don't support web searches, and programs such as Codex offer one in every call.
    pub(crate) fn drops_searches(&self, upstream: &Upstream) -> bool {
        let mut searches = self.survey.uses.iter().filter(|found| found.class == Class::OfferedSearch);
        !Dialect::of(upstream.kind).is_provider
            && searches.any(|found| matches!(look_up(upstream, &found.name), Listed::Unlisted))
    }
}

fn refused(name: &str) -> Error {
    let message = match name {
        "cache_salt" => {
            "`cache_salt` isn't supported: caches are already separate for each organization.".to_owned()
        }
        name => format!("`{name}` isn't supported by this model."),
    };
    unsupported(name.to_owned(), message)
}

#[cfg(test)]
mod tests;
