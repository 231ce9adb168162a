//! Futures that are compiled once.

use std::pin::Pin;

/// A future on the heap.
///
/// Each crate that awaits an `async fn` compiles it again, with all futures that it awaits. A function that
/// returns this type is compiled only in its own crate. Use this type for operations that several crates
/// await, if a small allocation doesn't matter.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
