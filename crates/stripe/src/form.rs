//! Request fields in the form encoding that Stripe accepts: `metadata[payment_id]=…`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::values::{Created, Metadata, PAGE};

/// Characters to encode in values: all except the unreserved characters of RFC 3986.
const IN_VALUES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters to encode in names. The brackets of nested fields stay unencoded, as in Stripe's own libraries.
const IN_NAMES: &AsciiSet = &IN_VALUES.remove(b'[').remove(b']');

/// The fields of a form or a query.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Form(String);

/// The parameters of a GET.
pub(crate) type Query = Form;

impl Form {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field. Empty values are skipped, because Stripe would remove the field.
    pub fn text(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.extend(utf8_percent_encode(name, IN_NAMES));
        self.0.push('=');
        self.0.extend(utf8_percent_encode(value, IN_VALUES));
    }

    pub fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub fn number(&mut self, name: &str, value: i64) {
        self.text(name, &value.to_string());
    }

    pub fn optional_number(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// Adds a currency code, which Stripe expects in lower case.
    pub fn currency(&mut self, name: &str, code: &str) {
        self.text(name, &code.to_ascii_lowercase());
    }

    /// Adds metadata under a name, such as `payment_intent_data[metadata]`.
    pub fn metadata(&mut self, name: &str, metadata: &Metadata) {
        for (key, value) in metadata {
            self.text(&format!("{name}[{key}]"), value);
        }
    }

    /// Adds a list of strings.
    pub fn list(&mut self, name: &str, values: &[&str]) {
        for (index, value) in values.iter().enumerate() {
            self.text(&format!("{name}[{index}]"), value);
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// Returns an encoded path segment.
pub(crate) fn segment(id: &str) -> String {
    utf8_percent_encode(id, IN_VALUES).to_string()
}

impl Created<'_> {
    /// Returns the parameters of a list.
    pub(crate) fn query(&self) -> Query {
        let mut query = Query::new();
        query.number("limit", PAGE);
        query.optional_number("created[gte]", self.from);
        query.optional_number("created[lt]", self.until);
        query.optional("starting_after", self.after);
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_stripe_reads_them() {
        let mut form = Form::new();
        assert_eq!(form.as_str(), "");
        form.text("mode", "payment");
        form.text("line_items[0][price_data][product_data][name]", "Credit & more = 5 €");
        form.number("line_items[0][price_data][unit_amount]", 2_500);
        form.currency("line_items[0][price_data][currency]", "USD");
        form.metadata(
            "metadata",
            &Metadata::from([("a b".into(), "1+1".into()), ("empty".into(), String::new())]),
        );
        form.list("expand", &["payment_intent.latest_charge", "setup_intent"]);
        form.optional("none", None);
        form.optional_number("none", None);
        let expected = "mode=payment&line_items[0][price_data][product_data][name]=Credit%20%26%20more%20%3D%205%20%E2%82%AC\
            &line_items[0][price_data][unit_amount]=2500&line_items[0][price_data][currency]=usd&metadata[a%20b]=1%2B1\
            &expand[0]=payment_intent.latest_charge&expand[1]=setup_intent";
        assert_eq!(form.as_str(), expected);
    }

    #[test]
    fn ids_stay_in_their_segment() {
        assert_eq!(segment("pi_3Abc"), "pi_3Abc");
        assert_eq!(segment("../v1/x?y#z"), "..%2Fv1%2Fx%3Fy%23z");
    }
}
