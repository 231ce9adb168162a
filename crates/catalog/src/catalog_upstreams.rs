//! The upstreams of a catalog, and the routes of its models to them.

use std::collections::HashSet;
use std::sync::Arc;

use super::reading::{ParsedUpstream, Rules};
use super::{Catalog, Model, Route, Upstream, UpstreamKind};

impl Catalog {
    /// Returns the upstreams, in the order of the file.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Returns `true` if an offered model has a route to an upstream of kind `demo`.
    pub fn uses_demo(&self) -> bool {
        let mut routes = self.models().flat_map(|model| &model.routes);
        routes.any(|route| route.upstream.kind == UpstreamKind::Demo)
    }

    pub(super) fn add_upstream(&mut self, found: ParsedUpstream, rules: &mut Rules<'_>) {
        let ParsedUpstream { line, upstream, warning } = found;
        self.open_files.extend(warning);
        if self.lines.upstreams.contains_key(&upstream.id) {
            let id = &upstream.id;
            rules.refuse(line, &format!("upstream `{id}`: `id`: two upstreams have this id"));
            return;
        }
        self.lines.upstreams.insert(upstream.id.clone(), line);
        self.upstreams.push(Arc::new(upstream));
    }

    /// Adds a route from every model to every upstream.
    pub(super) fn with_all_routes(mut self) -> Self {
        let route = |model: &Model, upstream: &Arc<Upstream>| Route {
            upstream: Arc::clone(upstream),
            model: model.id.clone(),
            weight: 1,
            tier: 0,
            cost: None,
        };
        for model in &mut self.models {
            let routes = self.upstreams.iter().map(|upstream| route(model, upstream)).collect();
            *model = Arc::new(Model { routes, ..(**model).clone() });
            self.by_id.insert(model.id.clone(), Arc::clone(model));
            self.by_alias.extend(super::aliases_of(model));
        }
        self
    }

    /// Returns warnings about allowed settings of the upstreams that may be mistakes, with their lines.
    pub(super) fn upstream_warnings(&self) -> Vec<String> {
        let mut lines = self.open_files.clone();
        let routes = self.all_models().flat_map(|model| &model.routes);
        let used: HashSet<_> = routes.map(|route| &route.upstream.id).collect();
        for upstream in &self.upstreams {
            let id = &upstream.id;
            let place = self.lines.place(self.lines.upstreams.get(id));
            if !used.contains(id) {
                lines.push(format!("{place}: upstream `{id}`: no model has a route to it"));
            }
            if let (Some(url), Some(_)) = (&upstream.url, &upstream.credential)
                && !url.is_https()
                && !url.is_private()
            {
                let why = "the credential is sent in the clear over a public network: use https";
                lines.push(format!("{place}: upstream `{id}`: `url`: {why}"));
            }
        }
        lines
    }
}
