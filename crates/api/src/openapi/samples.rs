//! The code samples of each operation, for curl and for Python with httpx. Secrets come from the environment.

use http::Method;
use serde_json::{Map, Value, json};

use super::{is_model_call, path_parameters, tag};
use crate::routes::Route;
use web::route::ErrorShape;

/// The call that a sample makes.
struct Sample<'a> {
    method: &'a Method,
    url: String,
    query: &'static [(&'static str, &'static str)],
    /// The headers: name, prefix of the value, and the environment variable that contains the secret.
    headers: Vec<(&'static str, &'static str, &'static str)>,
    body: Option<&'static str>,
    is_form: bool,
    /// `true` if the response may take longer than the default timeout of httpx.
    is_slow: bool,
    /// The Python expression that reads the response.
    answer: &'static str,
}

/// Returns the samples in the format of `x-codeSamples`.
pub fn of(route: &Route, server: &str) -> Value {
    let input = (route.input)();
    let sample = Sample {
        method: &route.method,
        url: format!("{server}{}", example_path(route.path)),
        query: route.operation.query,
        headers: credentials(route),
        body: Some(route.operation.example).filter(|example| !example.is_empty()),
        is_form: input.form.is_some(),
        is_slow: is_model_call(route.path),
        answer: match (route.content_type, route.error_shape()) {
            ("application/json", ErrorShape::Enveloped) => "response.json()[\"data\"]",
            ("application/json", _) => "response.json()",
            _ => "response.text",
        },
    };
    json!([
        {"lang": "Shell", "label": "curl", "source": sample.curl()},
        {"lang": "Python", "label": "Python", "source": sample.python()},
    ])
}

/// Returns the path with example values for its parameters.
fn example_path(path: &'static str) -> String {
    path_parameters::of(path).fold(path.replace("{*", "{"), |path, name| {
        let example = path_parameters::find(name).map(|known| known.example).unwrap_or_default();
        path.replace(&format!("{{{name}}}"), example)
    })
}

fn credentials(route: &Route) -> Vec<(&'static str, &'static str, &'static str)> {
    let bearer = |variable| ("Authorization", "Bearer ", variable);
    match route.access.scheme {
        None => Vec::new(),
        Some("refreshToken") => vec![bearer("REFRESH_TOKEN")],
        Some("modelKey") => vec![bearer("API_KEY")],
        Some("serviceToken") => vec![bearer("SERVICE_TOKEN")],
        Some("proxyToken") => {
            vec![("X-Tollkeeper-Service-Token", "", "SERVICE_TOKEN"), bearer("API_KEY")]
        }
        Some(_) if tag(route) == "Models" => vec![bearer("API_KEY")],
        Some(_) => vec![bearer("ACCESS_TOKEN")],
    }
}

impl Sample<'_> {
    fn curl(&self) -> String {
        let query: Vec<_> = self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let is_default = match self.body {
            Some(_) => self.method == Method::POST,
            None => self.method == Method::GET,
        };
        let method = if is_default { String::new() } else { format!("-X {} ", self.method) };
        let mut lines = vec![format!("curl {method}\"{}{query}\"", self.url)];
        for (name, before, variable) in &self.headers {
            lines.push(format!("-H \"{name}: {before}${variable}\""));
        }
        match self.body {
            Some(body) if self.is_form => {
                lines
                    .extend(fields(body).map(|(name, value)| format!("--data-urlencode \"{name}={value}\"")));
            }
            Some(body) => {
                lines.push("-H \"Content-Type: application/json\"".to_owned());
                lines.push(format!("-d '{body}'"));
            }
            None => {}
        }
        lines.join(" \\\n  ")
    }

    fn python(&self) -> String {
        let mut arguments = vec![format!("\"{}\"", self.url)];
        if !self.query.is_empty() {
            let pairs: Vec<_> =
                self.query.iter().map(|(name, value)| format!("\"{name}\": \"{value}\"")).collect();
            arguments.push(format!("params={{{}}}", pairs.join(", ")));
        }
        let headers: Vec<_> = self.headers.iter().map(|header| python_header(*header)).collect();
        if !headers.is_empty() {
            arguments.push(match headers.as_slice() {
                [one] => format!("headers={{{one}}}"),
                several => format!("headers={{\n        {},\n    }}", several.join(",\n        ")),
            });
        }
        if let Some(body) = self.body {
            let name = if self.is_form { "data" } else { "json" };
            arguments.push(format!("{name}={}", python_literal(body)));
        }
        if self.is_slow {
            arguments.push("timeout=60".to_owned());
        }
        let arguments = match arguments.as_slice() {
            [url] => url.clone(),
            several => format!("\n    {},\n", several.join(",\n    ")),
        };
        let os = if self.headers.is_empty() { "" } else { "import os\n\n" };
        let function = self.method.as_str().to_lowercase();
        format!(
            "{os}import httpx\n\nresponse = httpx.{function}({arguments})\nresponse.raise_for_status()\nprint({})",
            self.answer
        )
    }
}

fn python_header((name, before, variable): (&str, &str, &str)) -> String {
    match before {
        "" => format!("\"{name}\": os.environ[\"{variable}\"]"),
        before => format!("\"{name}\": f\"{before}{{os.environ['{variable}']}}\""),
    }
}

/// Returns the text fields of a flat object, in their original order.
fn fields(body: &str) -> impl Iterator<Item = (String, String)> {
    let members: Map<String, Value> = serde_json::from_str(body).unwrap_or_default();
    let mut fields: Vec<_> =
        members.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect();
    fields.sort_by_key(|(name, _)| body.find(&format!("\"{name}\":")));
    fields.into_iter()
}

/// Converts JSON to a Python literal, indented as an argument. Outside of strings, `true`, `false` and `null`
/// become Python's words.
fn python_literal(json: &str) -> String {
    let parts = json.split('"').enumerate().map(|(number, part)| {
        let is_text = number.rem_euclid(2) == 1;
        if is_text {
            part.to_owned()
        } else {
            part.replace("true", "True").replace("false", "False").replace("null", "None")
        }
    });
    let literal = parts.collect::<Vec<_>>().join("\"");
    let lines = literal.lines().enumerate().map(|(number, line)| {
        let text = line.trim_start();
        let spaces = line.len().saturating_sub(text.len()).saturating_mul(2).saturating_add(4);
        if number == 0 { text.to_owned() } else { format!("{:spaces$}{text}", "") }
    });
    lines.collect::<Vec<_>>().join("\n")
}
