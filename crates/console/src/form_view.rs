//! A form as a page shows it: labels, values, and the mistakes in the submitted input.

use http::StatusCode;

use kernel::error::{Code, Error};
use kernel::version::Version;
use web::forms::ObjectForm;

/// The names of a form's fields with their labels. A name is the path of the field in the API's body.
pub type Labels = &'static [(&'static str, &'static str)];

/// The name of the hidden field with the version of a form's initial values.
pub const VERSION: &str = "version";

/// A form as a page shows it.
#[derive(Clone, Debug)]
pub struct FormView {
    labels: Labels,
    values: Vec<(String, String)>,
    mistakes: Vec<Mistake>,
    code: Option<Code>,
}

/// A mistake in the submitted input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The field; `None` if the mistake concerns the whole form.
    pub field: Option<&'static str>,
    pub sentence: String,
}

impl FormView {
    /// Returns an empty form.
    pub fn new(labels: Labels) -> Self {
        Self { labels, values: Vec::new(), mistakes: Vec::new(), code: None }
    }

    /// Fills in a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.values.push((name.to_owned(), value.into()));
        self
    }

    /// Fills in a field with several values: a text area, or checkboxes.
    #[must_use]
    pub fn with_all(self, name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        values.into_iter().fold(self, |form, value| form.with(name, value))
    }

    /// Fills in a field that may have no value.
    #[must_use]
    pub fn with_optional(self, name: &str, value: Option<impl ToString>) -> Self {
        self.with(name, value.map(|value| value.to_string()).unwrap_or_default())
    }

    /// Returns the form as it was sent, with its mistakes.
    ///
    /// # Errors
    /// The error itself if it isn't about the form, such as 403 or 404.
    pub fn refused<T>(labels: Labels, form: &ObjectForm<T>, error: Error) -> Result<Self, Error> {
        let is_about_form = matches!(error.code.status(), StatusCode::BAD_REQUEST | StatusCode::CONFLICT)
            || matches!(
                error.code,
                Code::InvalidCredentials
                    | Code::WrongPassword
                    | Code::SecondFactorRequired
                    | Code::InvalidOneTimeCode
                    | Code::InvalidCredential
                    | Code::EmailNotVerified
                    | Code::AccountDisabled
                    | Code::RegistrationClosed
                    | Code::TooManyAttempts
                    | Code::ProcessorUnavailable
            );
        if !is_about_form {
            return Err(error);
        }
        Ok(Self::with_mistakes(labels, form, &error))
    }

    /// Returns the form as it was sent, with any error as its mistakes.
    pub fn with_mistakes<T>(labels: Labels, form: &ObjectForm<T>, error: &Error) -> Self {
        let values = form.pairs().iter().filter(|(name, _)| !is_secret(name)).cloned().collect();
        let mut view = Self { labels, values, mistakes: Vec::new(), code: Some(error.code) };
        if error.details.is_empty() {
            view.add(error.param.as_deref().unwrap_or_default(), error.code.as_str(), &words(error));
        }
        for detail in &error.details {
            view.add(&detail.param, detail.code, &detail.message);
        }
        view
    }

    /// Returns the form as it was sent.
    pub fn sent<T>(labels: Labels, form: &ObjectForm<T>) -> Self {
        Self { values: form.pairs().to_vec(), ..Self::new(labels) }
    }

    /// Returns the form with the version of its values in the field [`VERSION`]
    /// ([`conflicts`](crate::conflicts)).
    ///
    /// # Errors
    /// None: strings can always be serialized as JSON.
    pub fn versioned(self) -> Result<Self, Error> {
        let values: Vec<_> = self.labels.iter().map(|(name, _)| (name, self.lines(name))).collect();
        let version = Version::of(&values)?;
        Ok(self.with(VERSION, version.to_string()))
    }

    fn add(&mut self, param: &str, code: &str, message: &str) {
        // `restrictions.allowed_ips[2]` is one of the lines of its field.
        let param = param.split('[').next().unwrap_or_default();
        let known = self.labels.iter().find(|(name, _)| *name == param);
        let sentence = match known {
            Some((_, label)) if matches!(code, "required" | "empty") => format!("{label} can't be empty."),
            Some(_) if code == "wrong_type" => with_labels(&without_type(message), self.labels),
            _ => with_labels(message, self.labels),
        };
        self.mistakes.push(Mistake { field: known.map(|(name, _)| *name), sentence });
    }

    /// Returns the names of the fields with their labels.
    pub fn labels(&self) -> Labels {
        self.labels
    }

    /// Returns the label of a field.
    pub fn label(&self, name: &str) -> &'static str {
        self.labels.iter().find(|(other, _)| *other == name).map_or("", |(_, label)| label)
    }

    /// Returns the value of a field, or an empty string.
    pub fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    /// Returns the values of a field, one per line.
    pub fn lines(&self, name: &str) -> String {
        let values: Vec<_> = self.values.iter().filter(|(other, _)| other == name).collect();
        values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if this is one of the values of a field.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.values.iter().any(|(other, found)| other == name && found == value)
    }

    /// Returns the mistakes, in the order in which the fields were read.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// Returns the title of the list of mistakes.
    pub fn mistakes_title(&self) -> &'static str {
        match self.mistakes.iter().any(|mistake| mistake.field.is_some()) {
            true => "There’s a problem",
            false => "Request failed",
        }
    }

    /// Returns the mistakes of a field as one string.
    pub fn mistake(&self, name: &str) -> Option<String> {
        let of_field = self.mistakes.iter().filter(|mistake| mistake.field == Some(name));
        let sentences: Vec<_> = of_field.map(|mistake| mistake.sentence.as_str()).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// Returns the code of the error for which the form was refused.
    pub fn code(&self) -> Option<Code> {
        self.code
    }
}

/// Returns `true` if the value of a field is never sent back, as for passwords, codes, secrets and tokens.
/// `max_tokens` is a number, and isn't secret.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.split(['_', '-', '.']).any(|word| {
        matches!(word, "code" | "codes" | "token") || word.contains("password") || word.contains("secret")
    })
}

/// Returns the API's message about a value of the wrong type, without the names of JSON types.
fn without_type(message: &str) -> String {
    let (expected, _) = message.split_once(", not ").unwrap_or((message.trim_end_matches('.'), ""));
    format!("{}.", expected.replace("must be an integer", "must be a whole number"))
}

/// Returns the API's message with the form's labels instead of field names, and without hints for programs.
fn with_labels(message: &str, labels: Labels) -> String {
    let mut words = message.replace("; GET /v1/models lists all.", ".");
    for (name, label) in labels {
        words = words.replace(&format!("`{name}`"), label);
        // Replace the name of one line of a field.
        while let Some((before, rest)) = words.split_once(&format!("`{name}[")) {
            let Some((number, after)) = rest.split_once("]`") else { break };
            let line = number.parse().map_or(0, |index: usize| index.saturating_add(1));
            words = format!("{before}{label}, line {line}{after}");
        }
    }
    // The remaining backticks quote values.
    let mut is_open = false;
    words
        .chars()
        .map(|c| match c {
            '`' => {
                is_open = !is_open;
                if is_open { '“' } else { '”' }
            }
            c => c,
        })
        .collect()
}

/// Returns the message of an error, with the time to wait in words.
fn words(error: &Error) -> String {
    let message = error.public_message();
    match message.split_once("retry after the delay in") {
        // The message names a header, which the user doesn't see.
        Some((before, _)) => {
            format!("{}. {}", before.trim_end_matches([' ', ',', ':', ';']), crate::show::wait(error))
        }
        None if error.rate_limit.is_some() => format!("{message} {}", crate::show::wait(error)),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Labels = &[("name", "Name"), ("restrictions.allowed_ips", "Addresses")];

    #[test]
    fn mistakes_use_the_labels_of_the_form() {
        let mut form = FormView::new(LABELS);
        form.add("name", "required", "`name` is required and can't be null.");
        form.add(
            "restrictions.allowed_ips[2]",
            "invalid",
            "`restrictions.allowed_ips[2]` must be an address.",
        );
        form.add("name", "wrong_type", "`name` must be an integer, not a string.");
        form.add("other", "limit_reached", "The list is too long.");
        let found: Vec<_> =
            form.mistakes().iter().map(|mistake| (mistake.field, mistake.sentence.as_str())).collect();
        let expected = [
            (Some("name"), "Name can't be empty."),
            (Some("restrictions.allowed_ips"), "Addresses, line 3 must be an address."),
            (Some("name"), "Name must be a whole number."),
            (None, "The list is too long."),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            form.mistake("name").as_deref(),
            Some("Name can't be empty. Name must be a whole number.")
        );
        assert_eq!(form.mistake("other"), None);
    }

    #[test]
    fn secrets_are_known_by_their_name() {
        for name in ["password", "new_password", "Password", "one_time_code", "client_secret", "token"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["name", "email", "restrictions.allowed_ips", "restrictions.max_tokens", "encoder"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn values_of_a_field_are_its_lines() {
        let form = FormView::new(LABELS).with("name", "a").with_all("restrictions.allowed_ips", ["b", "c"]);
        assert_eq!((form.value("name"), form.lines("restrictions.allowed_ips").as_str()), ("a", "b\nc"));
        assert!(form.has("restrictions.allowed_ips", "c") && !form.has("name", "c"));
    }
}
