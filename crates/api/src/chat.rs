//! `/v1/chat`: chats with models, as OpenAI's SDKs make them (docs/contract/gateway.md).

pub mod completions;
