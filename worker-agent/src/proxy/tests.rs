use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use super::*;

fn hub(address: &str) -> HubAddress {
    address.parse().unwrap()
}

#[test]
fn proxy_urls_are_parsed() {
    let cases = [
        ("http://proxy.example:3128", Some(("proxy.example:3128", None))),
        (" http://proxy.example:3128/\n", Some(("proxy.example:3128", None))),
        ("proxy.example:3128", Some(("proxy.example:3128", None))),
        ("http://proxy.example", Some(("proxy.example:80", None))),
        ("http://[2001:db8::1]:3128", Some(("[2001:db8::1]:3128", None))),
        ("http://user:p%40ss@proxy:3128", Some(("proxy:3128", Some("user:p@ss")))),
        ("user:pass@proxy:3128", Some(("proxy:3128", Some("user:pass")))),
        ("http://user@proxy:3128", Some(("proxy:3128", Some("user:")))),
        ("https://proxy:3128", None),
        ("socks5://proxy:1080", None),
        ("http://user:p@ss@proxy:3128", None),
        ("http://user:pa/ss@proxy:3128", None),
        ("http://user:pa#ss@proxy:3128", None),
        ("http://user:pa?ss@proxy:3128", None),
        ("http://user:pa ss@proxy:3128", None),
        ("http://proxy:0", None),
        ("http://proxy:99999", None),
        ("http://proxy:", None),
        ("http://", None),
        ("http://:3128", None),
        ("ftp://proxy", None),
    ];
    for (url, expected) in cases {
        let parsed = Proxy::parse(url).map(|proxy| {
            let credentials = proxy.authorization.as_ref().map(|value| {
                assert!(value.is_sensitive());
                let text = value.to_str().unwrap().strip_prefix("Basic ").unwrap().to_owned();
                let decoded = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text);
                String::from_utf8(decoded.unwrap()).unwrap()
            });
            (proxy.to_string(), credentials)
        });
        let expected = expected
            .map(|(proxy, user): (&str, Option<&str>)| (proxy.to_owned(), user.map(str::to_owned)));
        assert_eq!(parsed, expected, "{url:?}");
    }
}

#[test]
fn password_is_in_no_text() {
    let good = ProxyFlag::from("http://user:s3cret@proxy:3128");
    let proxy = good.select(&hub("https://hub")).unwrap().unwrap();
    for text in [format!("{good:?}"), format!("{proxy:?}"), proxy.to_string()] {
        assert!(!text.contains("s3cret") && !text.contains("user"), "{text}");
    }
    let bad = ProxyFlag::from("https://user:s3cret@proxy:3128");
    let error = bad.select(&hub("https://hub")).unwrap_err().to_string();
    assert!(error.starts_with("--proxy (SWITCHYARD_PROXY) is not http://"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn environment_names_the_proxy_unless_excepted() {
    /// Flag, environment, hub, and the proxy.
    type Case =
        (&'static str, &'static [(&'static str, &'static str)], &'static str, Option<&'static str>);
    let cases: [Case; 22] = [
        ("", &[], "https://hub", None),
        ("", &[("HTTPS_PROXY", "http://a:1")], "https://hub", Some("a:1")),
        ("", &[("https_proxy", "http://b:1")], "https://hub", Some("b:1")),
        ("", &[("HTTPS_PROXY", ""), ("https_proxy", "http://b:1")], "https://hub", Some("b:1")),
        ("", &[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "b:1")], "https://hub", Some("a:1")),
        // These are for plain HTTP, which agents do not speak.
        ("", &[("HTTP_PROXY", "http://a:1")], "https://hub", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "hub.example")], "https://hub.example", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("no_proxy", "example")], "https://hub.example", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "x, .example")], "https://hub.example", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "*.example")], "https://hub.example", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "ample")], "https://hub.example", Some("a:1")),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "hub:7443")], "https://hub:7443", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "hub:443")], "https://hub:7443", Some("a:1")),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "*")], "https://hub", None),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "10.0.0.0/8")], "https://10.1.2.3:7443", None),
        (
            "",
            &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "10.0.0.0/8")],
            "https://11.0.0.1",
            Some("a:1"),
        ),
        ("", &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "2001:db8::1")], "https://[2001:db8::1]", None),
        (
            "",
            &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "[2001:db8::1]:7443")],
            "https://[2001:db8::1]:7443",
            None,
        ),
        ("", &[("HTTPS_PROXY", "a:1")], "https://localhost:7443", None),
        ("", &[("HTTPS_PROXY", "a:1")], "https://127.0.0.1:7443", None),
        ("none", &[("HTTPS_PROXY", "a:1")], "https://hub", None),
        // The flag is for the hub alone, so NO_PROXY does not limit it.
        (
            "http://c:1",
            &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "*")],
            "https://localhost",
            Some("c:1"),
        ),
    ];
    for (flag, environment, address, expected) in cases {
        let variable = |name: &str| {
            environment.iter().find(|it| it.0 == name).map(|(_, value)| (*value).to_owned())
        };
        let proxy = ProxyFlag::from(flag).select_with(&hub(address), variable).unwrap();
        let proxy = proxy.map(|proxy| proxy.to_string());
        assert_eq!(proxy.as_deref(), expected, "{flag:?} {environment:?} {address}");
    }
}

#[test]
fn unusable_environment_is_an_error_unless_excepted() {
    let with = |exceptions: &str| {
        let exceptions = exceptions.to_owned();
        ProxyFlag::default().select_with(&hub("https://hub"), move |name| match name {
            "HTTPS_PROXY" => Some("socks5://user:s3cret@proxy:1080".to_owned()),
            "NO_PROXY" => Some(exceptions.clone()),
            _ => None,
        })
    };
    assert_eq!(with("hub"), Ok(None));
    let error = with("other").unwrap_err().to_string();
    assert!(error.starts_with("HTTPS_PROXY is not http://"), "{error}");
    assert!(error.contains("--proxy none") && !error.contains("s3cret"), "{error}");
}

/// A network whose only host is a proxy. It reads the request's head, and sends this answer.
struct Network {
    answer: Vec<u8>,
    /// Whether the proxy closes the connection after its answer.
    closes: bool,
    seen: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl Network {
    fn new(answer: impl Into<Vec<u8>>) -> Self {
        Self { answer: answer.into(), closes: false, seen: Arc::default() }
    }

    fn tunnel(self, url: &str) -> Tunnel {
        Tunnel { proxy: Proxy::parse(url).unwrap(), dial: Arc::new(self) }
    }
}

impl Dial for Network {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            if (host, port) != ("proxy", 3128) {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "refused"));
            }
            let (near, far) = tokio::io::duplex(1024);
            tokio::spawn(serve(far, self.answer.clone(), self.closes, self.seen.clone()));
            Ok(Box::new(near) as Box<dyn Io>)
        })
    }
}

async fn serve(
    mut far: DuplexStream,
    answer: Vec<u8>,
    closes: bool,
    seen: Arc<parking_lot::Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(far.read_u8().await.unwrap());
    }
    seen.lock().push(String::from_utf8(head).unwrap());
    // The agent closes the connection of an answer that it refuses.
    let _ = far.write_all(&answer).await;
    if !closes {
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest).await;
    }
}

async fn error_of(tunnel: &Tunnel) -> String {
    tunnel.dial("hub.example", 7443).await.err().unwrap().to_string()
}

#[tokio::test]
async fn connect_request_has_target_and_credentials() {
    let cases = [
        ("http://user:p%40ss@proxy:3128", "hub.example", "hub.example:7443", true),
        ("http://proxy:3128", "2001:db8::1", "[2001:db8::1]:7443", false),
    ];
    for (url, host, target, has_credentials) in cases {
        let network = Network::new("HTTP/1.1 200 OK\r\n\r\n");
        let seen = network.seen.clone();
        network.tunnel(url).dial(host, 7443).await.map(drop).unwrap();
        let head = seen.lock().join("");
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(lines[0], format!("CONNECT {target} HTTP/1.1"));
        assert!(lines.contains(&format!("Host: {target}").as_str()), "{head}");
        // user:p@ss
        let credentials = lines.contains(&"Proxy-Authorization: Basic dXNlcjpwQHNz");
        assert_eq!(credentials, has_credentials, "{head}");
        assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
    }
}

/// Proxies answer in HTTP/1.0 too, and with headers that a tunnel has to ignore.
#[tokio::test]
async fn tunnel_keeps_bytes_behind_the_answer() {
    let heads = [
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nProxy-agent: old\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 201 Created\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ];
    for head in heads {
        let tunnel = Network::new(format!("{head}HELLO")).tunnel("http://proxy:3128");
        let mut stream = tunnel
            .dial("hub.example", 7443)
            .await
            .unwrap_or_else(|error| panic!("{head:?}: {error}"));
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"HELLO", "{head:?}");
        stream.write_all(b"to the hub").await.unwrap();
        stream.flush().await.unwrap();
    }
}

#[tokio::test]
async fn refused_connect_names_proxy_status_and_mend() {
    let basic = "\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: Basic realm=\"x\"";
    let cases = [
        (
            "407 No",
            basic,
            "user:s3cret@",
            "407 Proxy Authentication Required",
            "correct the user and password",
        ),
        ("407 No", basic, "", "407 Proxy Authentication Required", "give a user and a password"),
        (
            "407 No",
            "\r\nProxy-Authenticate: NTLM",
            "u:s3cret@",
            "407 Proxy",
            "does not offer Basic",
        ),
        ("403 No", "", "", "403 Forbidden", "allow CONNECT to hub.example:7443"),
        ("405 No", "", "", "405 Method Not Allowed", "allow CONNECT to hub.example:7443"),
        ("502 No", "", "", "502 Bad Gateway", "it cannot reach hub.example:7443"),
        ("301 No", "\r\nLocation: http://s3cret", "", "301 Moved", "its log has the reason"),
        ("500 s3cret", "", "", "500 Internal", "its log has the reason"),
    ];
    for (status, headers, credentials, shown, mend) in cases {
        let answer = format!("HTTP/1.1 {status}{headers}\r\nContent-Length: 6\r\n\r\ns3cret");
        let tunnel = Network::new(answer).tunnel(&format!("http://{credentials}proxy:3128"));
        let error = error_of(&tunnel).await;
        assert!(error.starts_with(&format!("the proxy proxy:3128 answered {shown}")), "{error}");
        assert!(error.contains("CONNECT hub.example:7443: ") && error.contains(mend), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn invalid_answer_is_an_error_with_the_proxy() {
    let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
    endless.extend(b"X-Filler: 0123456789\r\n".repeat(50_000));
    for answer in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"HTTP/1.1 2000 OK\r\n\r\n", &endless, b""] {
        let mut network = Network::new(answer);
        network.closes = true;
        let error = error_of(&network.tunnel("http://proxy:3128")).await;
        let expected = "the proxy proxy:3128 gave no valid answer to CONNECT hub.example:7443: ";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_proxy_is_given_up_before_the_connection() {
    for answer in ["", "HTTP/1.1 200 OK\r\nX-Half: "] {
        let began = Instant::now();
        let error = error_of(&Network::new(answer).tunnel("http://proxy:3128")).await;
        assert_eq!(began.elapsed().as_secs(), DEADLINE.as_secs());
        let expected = "the proxy proxy:3128 did not answer CONNECT hub.example:7443 within 8 s";
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn unreachable_proxy_is_named() {
    let error = error_of(&Network::new("").tunnel("http://user:s3cret@other:3128")).await;
    assert_eq!(error, "cannot connect to the proxy other:3128: refused");
}
