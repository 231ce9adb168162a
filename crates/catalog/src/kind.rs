//! The kinds of models.

use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The kind of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Chat completions.
    Chat,
    Embeddings,
}

db::words!(Kind);
