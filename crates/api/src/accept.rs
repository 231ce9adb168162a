//! The header `Accept` (RFC 9110, section 12.5.1).

use http::{HeaderMap, header};

/// Returns `true` if the client names this content type and doesn't rank it below JSON.
pub fn prefers(headers: &HeaderMap, content_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    is_preferred(&values.collect::<Vec<_>>().join(","), content_type)
}

fn is_preferred(accept: &str, content_type: &str) -> bool {
    let (mut wanted, mut json) = (0.0_f32, 0.0_f32);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f32);
        if kind.eq_ignore_ascii_case(content_type) {
            wanted = wanted.max(weight);
        } else if kind.eq_ignore_ascii_case("application/json") {
            json = json.max(weight);
        }
    }
    wanted > 0.0 && wanted >= json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_is_preferred_if_it_is_named_and_not_behind_json() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for accept in [
            "text/html",
            browser,
            "TEXT/HTML; charset=utf-8",
            "application/json;q=0.5, text/html",
            "text/html, application/json",
        ] {
            assert!(is_preferred(accept, "text/html"), "{accept}");
            assert!(!is_preferred(accept, "text/csv"), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/plain",
            "text/html;q=x;q=0",
        ] {
            assert!(!is_preferred(accept, "text/html"), "{accept}");
        }
    }
}
