//! Work that continues if its client disconnects.

use kernel::error::Error;
use kernel::futures::BoxFuture;

/// Runs a future of the current request to its end, even if the caller is dropped.
///
/// # Errors
/// Those of the future; 500 if it panics.
pub async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (id, trace) = (telemetry::request_id(), telemetry::current_trace());
    // Boxed to erase the type of the future, because a task is compiled once for each type.
    let work: BoxFuture<'static, Result<T, Error>> = Box::pin(work);
    let task = tokio::spawn(telemetry::InRequest::new(id, trace, work));
    task.await.unwrap_or_else(|_| Err(Error::internal("the handler panicked")))
}
