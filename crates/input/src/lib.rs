//! Input of requests. A single declaration of a record reads it, refuses invalid values, and documents it.
//!
//! * [`json`] parses a body into a tree.
//! * [`fields`] reads the fields of an object, and collects all problems; [`schema`] describes them as JSON
//!   schema.
//! * [`forms`] converts the fields of an HTML form to the equivalent object.
//! * [`objects`] has objects that another library reads.
//! * [`types`] has the types of fields that several operations share.

pub mod fields;
pub mod forms;
pub mod json;
pub mod objects;
mod record;
pub mod schema;
pub mod types;
