//! The fields of a request. Like Stripe, an operation rejects fields that it doesn't have.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::problem::Problem;

/// The fields of a form or of a query.
pub struct Params {
    fields: Vec<(String, String)>,
    read: RefCell<BTreeSet<String>>,
}

impl Params {
    pub fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let fields = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self { fields: fields.collect(), read: RefCell::default() }
    }

    /// Returns all fields, in order.
    pub fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.read.borrow_mut().insert(name.to_owned());
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &str) -> Result<&str, Problem> {
        let missing =
            || Problem::invalid(name, "parameter_missing", &format!("Missing required param: {name}."));
        self.text(name).ok_or_else(missing)
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong =
            |_| Problem::invalid(name, "parameter_invalid_integer", &format!("Invalid integer: {text}"));
        text.parse().map(Some).map_err(wrong)
    }

    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => Err(Problem::invalid(name, "", &format!("Invalid boolean: {text}"))),
        }
    }

    /// Returns the field, whose value must be one of these words.
    pub fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, Problem> {
        match self.text(name) {
            Some(text) if !words.contains(&text) => {
                let why = format!("Invalid {name}: must be one of {}", words.join(", "));
                Err(Problem::invalid(name, "", &why))
            }
            text => Ok(text),
        }
    }

    /// Returns the values of a list: `name[0]`, `name[1]` and so on, or `name[]`.
    pub fn list(&self, name: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (field, value) in &self.fields {
            let index = field.strip_prefix(name).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
            if index.is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit())) {
                self.read.borrow_mut().insert(field.clone());
                values.push(value.as_str());
            }
        }
        values
    }

    /// Returns the metadata. Enforces Stripe's limits: 50 keys of up to 40 characters, with values of up to
    /// 500 characters.
    pub fn metadata(&self, name: &str) -> Result<Value, Problem> {
        let mut metadata = Map::new();
        for (field, value) in &self.fields {
            let key = field.strip_prefix(name).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
            let Some(key) = key else { continue };
            self.read.borrow_mut().insert(field.clone());
            if key.chars().count() > 40 || value.chars().count() > 500 || key.contains(['[', ']']) {
                let why = format!("Metadata key or value too long: {key}");
                return Err(Problem::invalid(name, "", &why));
            }
            metadata.insert(key.to_owned(), value.clone().into());
        }
        if metadata.len() > 50 {
            return Err(Problem::invalid(name, "", "Metadata has more than 50 keys"));
        }
        Ok(Value::Object(metadata))
    }

    /// Checks that the operation read every field, and that none is empty.
    pub fn finish(&self) -> Result<(), Problem> {
        let read = self.read.borrow();
        for (name, value) in &self.fields {
            if !read.contains(name) {
                let why = format!("Received unknown parameter: {name}");
                return Err(Problem::invalid(name, "parameter_unknown", &why));
            }
            if value.is_empty() {
                let why = format!("You passed an empty string for '{name}'.");
                return Err(Problem::invalid(name, "parameter_invalid_empty", &why));
            }
        }
        Ok(())
    }
}
