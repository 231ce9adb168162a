//! Stored responses, which can be sent again.

use axum::body::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};

use super::{Body, to_json, whole};
use kernel::error::{Code, Error};

/// A text response, as it was first sent.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeptResponse {
    status: u16,
    /// The code of an error.
    code: Option<String>,
    headers: Vec<(String, String)>,
    body: String,
}

impl std::fmt::Debug for KeptResponse {
    /// Omits the body, which may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

impl KeptResponse {
    /// Reads a response. `code` is the error code of the response, if any.
    ///
    /// # Errors
    /// An error if the body or a header isn't text.
    pub async fn read(response: Response<Body>, code: Option<Code>) -> Result<Self, Error> {
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(Error::internal)?.to_bytes();
        let headers = head.headers.iter().map(|(name, value)| {
            Ok((name.as_str().to_owned(), value.to_str().map_err(Error::internal)?.to_owned()))
        });
        Ok(Self {
            status: head.status.as_u16(),
            code: code.map(|code| code.as_str().to_owned()),
            headers: headers.collect::<Result<_, Error>>()?,
            body: String::from_utf8(body.into()).map_err(Error::internal)?,
        })
    }

    /// Returns the response as bytes.
    ///
    /// # Errors
    /// An error if serialization fails, which no known response causes.
    pub fn to_bytes(&self) -> Result<Bytes, Error> {
        to_json(self)
    }

    /// Reads the result of [`KeptResponse::to_bytes`].
    ///
    /// # Errors
    /// An error if the bytes aren't such a result.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(Error::internal)
    }

    /// Returns the error code of the response, if it has one that this version of the server defines.
    pub fn code(&self) -> Option<Code> {
        let word = self.code.as_deref()?;
        Code::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    /// Returns the stored response, with its error code in the extensions.
    ///
    /// # Errors
    /// An error if the stored data isn't a valid response.
    pub fn into_response(self) -> Result<Response<Body>, Error> {
        let code = self.code();
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(Error::internal)?;
            headers.append(name, HeaderValue::from_str(value).map_err(Error::internal)?);
        }
        let mut response = Response::new(whole(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(Error::internal)?;
        *response.headers_mut() = headers;
        if let Some(code) = code {
            response.extensions_mut().insert(code);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::error_response;

    async fn parts(response: Response<Body>) -> (StatusCode, HeaderMap, Bytes, Option<Code>) {
        let code = response.extensions().get::<Code>().copied();
        let (head, body) = response.into_parts();
        (head.status, head.headers, body.collect().await.unwrap().to_bytes(), code)
    }

    #[tokio::test]
    async fn response_is_sent_again_as_it_was() {
        let error = Error::new(Code::NameTaken).param("name");
        let (status, headers, body, _) = parts(error_response(&error, true)).await;
        let kept = KeptResponse::read(error_response(&error, true), Some(error.code)).await.unwrap();
        let kept = KeptResponse::from_bytes(&kept.to_bytes().unwrap()).unwrap();
        assert_eq!(format!("{kept:?}"), "KeptResponse { status: 409, .. }");
        let again = parts(kept.into_response().unwrap()).await;
        assert_eq!(again, (status, headers, body, Some(Code::NameTaken)));
        assert!(KeptResponse::from_bytes(b"{}").is_err());
    }
}
