//! Proxies on the way that are reached by TLS.

use super::*;
use crate::net::{Upstream, UpstreamTls};

/// By way of a proxy that is trusted so, which is shown that.
fn via(scheme: &str, at: SocketAddr, trusted: &Authority, shown: Option<Shown>) -> Settings {
    let upstream: Upstream = format!("{scheme}://{at}").parse().unwrap();
    let upstream = upstream.with_tls(UpstreamTls::new(trusted.alone(), shown.map(Shown::with_key)).unwrap());
    Settings { via: Some(Arc::new(upstream)), ..Settings::default() }
}

#[tokio::test]
async fn a_proxy_on_the_way_takes_who_shows_a_certificate() {
    for (kind, scheme) in [(EntranceKind::Http, "https"), (EntranceKind::Socks, "socks5+tls")] {
        let server = server().await;
        let at = server.local_addr().unwrap();
        let operators = Fixture::with(entrance(kind, true), Settings::default()).await;
        let (sent, answered) = (pattern(1_000_001), pattern(2_000_003));
        let settings = via(scheme, operators.at, authority(), Some(authority().vouch("ann", 2090)));
        let laptop = Fixture::with(EntranceKind::Forward(at.into()).into(), settings).await;
        exchange_with(laptop.connect().await, &server, [&sent, &answered]).await;
        assert_eq!(laptop.told().await, ["forward ended"]);
        assert_eq!(operators.told().await, ["ann ended"]);
    }
}

const UNSIGNED: &str =
    "shows a certificate that is not taken here: no authority that is trusted here has signed it";

#[tokio::test]
async fn a_proxy_on_the_way_that_is_not_who_it_should_be_is_not_used() {
    for (kind, scheme) in [(EntranceKind::Http, "https"), (EntranceKind::Socks, "socks5+tls")] {
        let operators = Fixture::with(entrance(kind, true), Settings::default()).await;
        let other = Authority::new("another");
        let ann = || Some(authority().vouch("ann", 2090));
        for (trusted, shown, says) in [
            (&other, ann(), UNSIGNED),
            (authority(), None, "does not take who this is"),
            (authority(), Some(other.vouch("ann", 2090)), "does not take who this is"),
        ] {
            let settings = via(scheme, operators.at, trusted, shown);
            let target: Target = "192.0.2.1:80".parse().unwrap();
            let laptop = Fixture::with(EntranceKind::Forward(target).into(), settings).await;
            let mut client = laptop.connect().await;
            assert!(client.read(&mut [0; 1]).await.is_err());
            let told = laptop.told().await;
            assert_eq!(told, [format!("forward the proxy on the way {says}")], "{scheme}");
        }
        // Who is not trusted is told so.
        let told = operators.told().await;
        let alert = "refused: it gave up the handshake of TLS: UnknownCA";
        assert!(told.len() == 3 && told.iter().any(|line| line.ends_with(alert)), "{told:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_proxy_on_the_way_is_said() {
    let of = |place, times| authority().vouch_for("proxy", place, times, Vec::new());
    let of_client = vec![ExtendedKeyUsagePurpose::ClientAuth];
    for (shown, says) in [
        // Its name is the authority's, whose key it has not.
        (Authority::new("the one").vouch("proxy", 2090), "no authority that is trusted here has signed it"),
        (of("192.0.2.1", (2020, 2090)), "it is for other names than 127.0.0.1"),
        (of("127.0.0.1", (2020, 2021)), "it has expired"),
        (of("127.0.0.1", (2080, 2090)), "it is not valid yet"),
        (authority().vouch_for("proxy", "127.0.0.1", (2020, 2090), of_client), "it is for another purpose"),
    ] {
        let entrance = showing(shown, EntranceKind::Http, false);
        let operators = Fixture::with(entrance, Settings::default()).await;
        let said = said_of(operators.at).await;
        assert_eq!(said, format!("shows a certificate that is not taken here: {says}"));
        let told = operators.told().await;
        assert!(told[0].starts_with("http refused: it gave up the handshake of TLS: "), "{says}: {told:?}");
    }
    // One that speaks in the clear.
    let listener = server().await;
    let answering = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let (said, ()) = tokio::join!(said_of(listener.local_addr().unwrap()), answering);
    assert_eq!(said, "does not speak TLS");
}

/// Of the proxy there, when it is on the way.
async fn said_of(at: SocketAddr) -> String {
    let target: Target = "192.0.2.1:80".parse().unwrap();
    let settings = via("https", at, authority(), None);
    let laptop = Fixture::with(EntranceKind::Forward(target).into(), settings).await;
    let mut client = laptop.connect().await;
    assert!(client.read(&mut [0; 1]).await.is_err());
    let told = laptop.told().await;
    told[0].strip_prefix("forward the proxy on the way ").expect("what it is about").to_owned()
}

#[tokio::test]
async fn a_proxy_on_the_way_that_breaks_off_is_no_end() {
    let (sent, heard) = (b"GET / HTTP/1.0\r\n\r\n", b"half of it");
    let server = server().await;
    let operators = Fixture::with(entrance(EntranceKind::Http, false), Settings::default()).await;
    let settings = via("https", operators.at, authority(), None);
    let laptop =
        Fixture::with(EntranceKind::Forward(server.local_addr().unwrap().into()).into(), settings).await;
    let mut client = laptop.connect().await;
    client.write_all(sent).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_exact(&mut vec![0; sent.len()]).await.unwrap();
    stream.write_all(heard).await.unwrap();
    client.read_exact(&mut vec![0; heard.len()]).await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    let error = client.read(&mut [0; 1]).await.expect_err("no end in order");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
