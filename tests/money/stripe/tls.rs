//! The secret key is sent only to a server whose certificate is trusted.

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tollkeeper::kernel::secrets::Secret;
use tollkeeper::kernel::urls::BaseUrl;
use tollkeeper::stripe::{Client, Error, NewCustomer, Reason, Settings};

use super::key;
use support::python;
use support::receiver::Receiver;
use support::smtp::make_certificates;
use support::world::Folder;

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{\"id\":\"cus_1\",\"livemode\":false}\n";

#[tokio::test]
async fn unknown_server_never_gets_the_secret_key() {
    if !std::process::Command::new("openssl").arg("version").output().is_ok_and(|made| made.status.success())
    {
        return python::skip("TLS to Stripe", "`openssl` is not installed");
    }
    let [known, unknown] = [Folder::new(), Folder::new()];
    make_certificates(&known.0);
    make_certificates(&unknown.0);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(known.0.join("ca.pem")).unwrap()).unwrap();
    for (folder, is_known) in [(&known, true), (&unknown, false)] {
        let receiver = Receiver::start_with_tls(ANSWER, &folder.0).await;
        let url = BaseUrl::parse(&format!("https://localhost:{}", receiver.port));
        let settings = Settings::new(Secret::new("sk_test_word"), url).unwrap();
        let client = Client::new(Settings { roots: Some(roots.clone()), ..settings }).unwrap();
        let made = client.create_customer(&NewCustomer::default(), &key("customer")).await;
        if is_known {
            assert_eq!(made.unwrap().id, "cus_1");
            let received = receiver.take();
            assert_eq!(received[0].path, "/v1/customers");
            assert_eq!(received[0].headers["authorization"], "Bearer sk_test_word");
        } else {
            let expected =
                Error::Unknown { reason: Reason::NotConnected, should_retry: None, request_id: None };
            assert_eq!(made.unwrap_err(), expected);
            assert!(receiver.take().is_empty());
        }
    }
}
