//! Clients that hold connections without requests, in memory.

use axum::routing::get;
use rustls::crypto::aws_lc_rs;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

const NAME: &str = "here.example";

/// A connection with this ALPN protocol, and the server's task.
async fn connect(protocol: &[u8]) -> (TlsStream<DuplexStream>, tokio::task::JoinHandle<()>) {
    let own = ServerCertificate::new(None, NAME.to_owned(), jiff::Timestamp::now()).unwrap();
    let router = Router::new().route("/", get(async || "hello"));
    let site = Open::new("test", own.certificate.clone(), &TlsPolicy::default(), router).unwrap();
    let (ours, theirs) = duplex(1 << 16);
    let served = tokio::spawn(async move {
        let (taken, shutdown) = (CancellationToken::new(), CancellationToken::new());
        serve_tls(&site, theirs, Activity::new(Instant::now()), taken, shutdown).await;
    });
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(own.trusted().as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(NAME).unwrap(), ours).await.unwrap();
    (stream, served)
}

#[tokio::test(start_paused = true)]
async fn connection_without_request_is_closed() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const NO_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    for (sentence, protocol, said) in [
        ("says nothing", &b"http/1.1"[..], vec![]),
        ("says nothing in HTTP/2", b"h2", vec![]),
        ("begins a word", b"h2", PREFACE[..3].to_vec()),
        ("begins a request", b"http/1.1", b"GET / HT".to_vec()),
        ("opens HTTP/2 and asks nothing", b"h2", [PREFACE, NO_SETTINGS].concat()),
    ] {
        let (mut stream, served) = connect(protocol).await;
        let start = tokio::time::Instant::now();
        stream.write_all(&said).await.unwrap();
        stream.flush().await.unwrap();
        served.await.unwrap();
        assert!(
            start.elapsed() <= activity::FIRST + HANDSHAKE,
            "one who {sentence}: {:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn connection_after_a_request_is_kept_for_a_while() {
    let (mut stream, served) = connect(b"http/1.1").await;
    for pause in [Duration::ZERO, HANDSHAKE / 2] {
        tokio::time::sleep(pause).await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert_ne!(
                stream.read_buf(&mut answer).await.unwrap(),
                0,
                "{}",
                String::from_utf8_lossy(&answer)
            );
        }
    }
    let start = tokio::time::Instant::now();
    served.await.unwrap();
    assert!(start.elapsed() <= activity::IDLE + HANDSHAKE);
}

#[tokio::test]
async fn probe_is_answered_among_idle_connections() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let router = Router::new().route("/livez", get(async || "ok"));
    let server = tokio::spawn(serve_bounded(listener, router, stop.clone()));
    let connect = || tokio::net::TcpStream::connect(address);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(connect().await.unwrap());
    }
    let mut probe = connect().await.unwrap();
    probe.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), probe.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // The first connections were evicted: one address may have 64.
    let ended = tokio::time::timeout(Duration::from_secs(10), silent[0].read(&mut [0; 16])).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    stop.cancel();
    drop(silent);
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
}
