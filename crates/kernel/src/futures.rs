//! Futures that are compiled once.

use std::pin::Pin;

/// A future on the heap.
///
/// Each crate that awaits an `async fn` compiles it again, with everything that it awaits. A function that
/// returns this type is compiled in its own crate only. Use it for operations that several crates await, where
/// a small allocation doesn't matter.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
