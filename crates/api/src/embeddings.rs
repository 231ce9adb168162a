//! `/v1/embeddings`: vectors for text (docs/contract/gateway.md#embeddings).

use crate::Api;
use crate::gate::ModelCallScope;
use crate::model_calls::{self, ModelAnswer, model, texts};
use crate::refusals::{DECISION, GATEWAY};
use input::schema::ObjectSchema;
use kernel::error::Error;
use web::input::{DescribeBody, RawJson};
use web::route::Operation;

/// The fields of an embeddings request that the gateway reads. All other fields are passed unchanged to the
/// server behind the model.
#[derive(Debug)]
pub struct EmbeddingRequest;

impl DescribeBody for EmbeddingRequest {
    fn describe() -> ObjectSchema {
        ObjectSchema {
            properties: vec![
                model("svc-embedding-1"),
                texts("input", "A text", "One input text, or an array of them."),
            ],
            is_open: true,
        }
    }
}

pub const CREATE: Operation = Operation {
    error_groups: &[DECISION, GATEWAY],
    example: r#"{
  "model": "svc-embedding-1",
  "input": "A text"
}"#,
    ..Operation::new("create_embedding")
};

/// Get the vectors of texts.
///
/// The maximum price of all inputs is reserved before the model is called, and the exact price is booked
/// before the response.
pub async fn create(
    api: Api,
    scope: ModelCallScope,
    body: RawJson<EmbeddingRequest>,
) -> Result<ModelAnswer, Error> {
    model_calls::answer(&api, gateway::Operation::Embeddings, scope, body.bytes).await
}
