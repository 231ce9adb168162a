//! Embeddings: vectors of the frequency of each byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{DemoAnswer, Reply, Request, has_tokens};

/// The length of vectors if the model has no dimension.
const DIMENSIONS: usize = 8;
/// Maximum length of a vector.
const MAX_DIMENSIONS: usize = 4_096;

/// Returns the answer with a vector for each input.
pub(super) fn answer(reply: &Reply, request: &Request, dimension: Option<i64>) -> DemoAnswer {
    let asked = request.dimensions.and_then(|dimensions| usize::try_from(dimensions).ok());
    let of_model = dimension.and_then(|dimension| usize::try_from(dimension).ok());
    let dimensions = asked.or(of_model).unwrap_or(DIMENSIONS).clamp(1, MAX_DIMENSIONS);
    let inputs = match &request.input {
        Value::Array(items) if !has_tokens(&request.input) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let is_base64 = request.encoding_format.as_deref() == Some("base64");
    let embedding = |(index, input): (usize, &Value)| {
        let vector = vector(&input.to_string(), dimensions);
        let embedding = if is_base64 { base64(&vector).into() } else { json!(vector) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    let data: Vec<_> = inputs.iter().enumerate().map(embedding).collect();
    DemoAnswer::whole(&json!({
        "object": "list",
        "data": data,
        "model": reply.model,
        "usage": {"prompt_tokens": reply.prompt_tokens, "total_tokens": reply.prompt_tokens},
    }))
}

/// Returns a vector whose norm is 1.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.0_f32; dimensions];
    for byte in text.bytes() {
        if let Some(count) = vector.get_mut(usize::from(byte) % dimensions) {
            *count += 1.0;
        }
    }
    let length = vector.iter().map(|count| count * count).sum::<f32>().sqrt();
    vector.iter().map(|count| count / length).collect()
}

/// Returns the numbers as little-endian bytes in base64, the format that OpenAI's SDKs request.
fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    BASE64.encode(bytes)
}
