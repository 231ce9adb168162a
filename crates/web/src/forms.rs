//! HTML forms with the fields of a JSON body.

use std::borrow::Cow;

use crate::call::Call;
use crate::input::{Description, Input, form_text, parse_pairs, query_parameters, read_form};
use crate::state::State;
use ::input::fields::{self, Record, Sent};
use ::input::forms;
use ::input::json::{Json, Members};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;

/// The body of an HTML form, read by the record that also reads the JSON body of the same operation (see
/// [`forms`]). The handler shows mistakes next to the fields of the form.
pub struct ObjectForm<T> {
    fields: Option<Result<T, Error>>,
    sent: Vec<(String, String)>,
}

impl<T> ObjectForm<T> {
    /// Takes the record out of the form, or the error with all its mistakes. The fields are kept as they were
    /// sent.
    ///
    /// # Errors
    /// 400; also if the record was already taken, which is a bug.
    pub fn take(&mut self) -> Result<T, Error> {
        self.fields.take().unwrap_or_else(|| Err(Code::InvalidRequest.into()))
    }

    /// Returns the fields in the order in which they were sent, valid or not.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.sent
    }

    /// Returns the first value of a field as it was sent, or an empty string if no field has this name.
    pub fn sent(&self, name: &str) -> &str {
        self.sent.iter().find(|(other, _)| other == name).map_or("", |(_, text)| text)
    }
}

impl<T> std::fmt::Debug for ObjectForm<T> {
    /// Hides the fields, because they may contain passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectForm(***)")
    }
}

impl<S: State, T: Record<S>> Input<S> for ObjectForm<T> {
    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let sent = read_pairs(state, call).await?;
        // If the session ends in the meantime, the error page keeps the user's input.
        call.form = Some(sent.clone());
        let schema = fields::describe::<S, T>().to_value();
        Ok(Self { fields: Some(fields::read(state, forms::members(&schema, &sent))), sent })
    }
    fn describe() -> Description {
        Description { form: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// A form that is sent as a query string, such as the filters of a page. The handler shows mistakes next to
/// the fields of the form. An empty field is treated as absent; unknown parameters are ignored.
#[derive(Debug)]
pub struct QueryForm<T>(pub ObjectForm<T>);

impl<S: State, T: Record<S>> Input<S> for QueryForm<T> {
    const READS_BODY: bool = false;

    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let (query, sent) = filled_parameters(call)?;
        let fields = Some(fields::read(state, Sent { query, body: Vec::new() }));
        Ok(Self(ObjectForm { fields, sent }))
    }
    fn describe() -> Description {
        Description { query: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}

/// Returns the parameters that aren't empty, as the members of a record, and all parameters as they were
/// sent.
fn filled_parameters<C>(call: &Call<C>) -> Result<(Members<'_>, Vec<(String, String)>), Error> {
    let mut query = query_parameters(call)?;
    query.retain(|(_, value)| !matches!(value, Json::Text(text) if text.is_empty()));
    let text = |(name, value): &(Cow<'_, str>, Json<'_>)| pair(name, value.clone());
    let sent = query.iter().filter_map(text).collect();
    Ok((query, sent))
}

/// Reads the body of a form as pairs of names and values, in order.
///
/// # Errors
/// An error if the body isn't a form, isn't UTF-8, or is too long.
pub fn read_pairs<'a, S: State>(
    state: &'a S,
    call: &'a mut Call<S::Credential>,
) -> BoxFuture<'a, Result<Vec<(String, String)>, Error>> {
    Box::pin(async move {
        let bytes = read_form(state, call, S::body_limit(call.uri.path())).await?;
        let mut pairs = Vec::new();
        for (name, value) in parse_pairs(form_text(&bytes)?, "body", "form")? {
            match value {
                Json::Array(values) => {
                    pairs.extend(values.into_iter().filter_map(|value| pair(&name, value)));
                }
                value => pairs.extend(pair(&name, value)),
            }
        }
        Ok(pairs)
    })
}

fn pair(name: &str, value: Json<'_>) -> Option<(String, String)> {
    match value {
        Json::Text(text) => Some((name.to_owned(), text.into_owned())),
        _ => None,
    }
}

/// The query parameters of a page. An empty field of a filter is treated as absent; unknown parameters are
/// ignored.
#[derive(Debug)]
pub struct Filters<T> {
    pub fields: T,
    /// The parameters as they were sent.
    pub sent: Vec<(String, String)>,
}

impl<T> Filters<T> {
    /// Returns a parameter as it was sent, or an empty string if no parameter has this name.
    pub fn sent(&self, name: &str) -> &str {
        self.sent.iter().find(|(other, _)| other == name).map_or("", |(_, text)| text)
    }
}

impl<S: State, T: Record<S>> Input<S> for Filters<T> {
    const READS_BODY: bool = false;

    async fn read(state: &S, call: &mut Call<S::Credential>) -> Result<Self, Error> {
        let (query, sent) = filled_parameters(call)?;
        Ok(Self { fields: fields::read(state, Sent { query, body: Vec::new() })?, sent })
    }
    fn describe() -> Description {
        Description { query: Some(fields::describe::<S, T>()), ..Description::default() }
    }
}
