//! Checks that an HTML form is read like the equivalent JSON body: with the same record or the same errors.

#![cfg_attr(feature = "engine", no_main)]

use fuzz::WORLD;
use fuzz::fuzz_target;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};
use tollkeeper::api::Api;
use tollkeeper::api::auth::register::Register;
use tollkeeper::api::organizations::bodies::{CreateOrganization, UpdateOrganization};
use tollkeeper::api::organizations::projects::api_keys::CreateApiKey;
use tollkeeper::input::fields::{self, Record};
use tollkeeper::input::forms;
use tollkeeper::input::json::{Json, Members};
use tollkeeper::web::forms::ObjectForm;
use tollkeeper::web::input::{FORM_CONTENT_TYPE, Input};

fuzz_target!(|bytes: &[u8]| {
    record::<Register>(bytes);
    record::<CreateOrganization>(bytes);
    record::<UpdateOrganization>(bytes);
    record::<CreateApiKey>(bytes);
});

fn record<T: Record<Api>>(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM_CONTENT_TYPE));
    let mut call = WORLD.call(Method::POST, headers, bytes.to_vec());
    let mut form = match WORLD.runtime.block_on(ObjectForm::<T>::read(&WORLD.app.api, &mut call)) {
        Ok(form) => form,
        Err(error) => {
            let status = error.code.status();
            assert!(matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE), "{error}");
            return;
        }
    };
    assert_eq!(call.form.as_deref(), Some(form.pairs()), "what was typed is kept");
    let schema = fields::describe::<Api, T>().to_value();
    let json = object(&forms::members(&schema, form.pairs())).to_string();
    let body = fields::object(json.as_bytes()).expect("JSON");
    match (form.take(), fields::read::<Api, T>(&WORLD.app.api, body)) {
        (Ok(_), Ok(_)) => {}
        (Err(by_form), Err(by_body)) => assert_eq!(by_form.details, by_body.details, "{json}"),
        (by_form, _) => panic!("{json}: the form is {}", if by_form.is_ok() { "good" } else { "bad" }),
    }
}

fn object(members: &Members<'_>) -> Value {
    Value::Object(
        members.iter().map(|(name, value)| (name.clone().into_owned(), json(value))).collect::<Map<_, _>>(),
    )
}

fn json(value: &Json<'_>) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Integer(number) => (*number).into(),
        Json::Float(number) => (*number).into(),
        Json::Text(text) => text.clone().into_owned().into(),
        Json::Array(items) => items.iter().map(json).collect(),
        Json::Object(members) => object(members),
    }
}
