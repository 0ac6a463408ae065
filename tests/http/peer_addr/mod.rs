//! Where the peer's address comes from, on real sockets where there is one.

#[cfg(all(feature = "axum", unix))]
mod axum_over_unix_socket;
#[cfg(feature = "tonic")]
mod by_tonic;

use http::Request;
use tower_throttle::{
    AccessList, AddressExtractor as _, Key, KeyError, KeyExtractor, Peer, PeerAddr, RequestHead,
};

fn extract<B>(extractor: impl KeyExtractor, request: &Request<B>) -> Result<Key, KeyError> {
    extractor.extract(&RequestHead::new(request))
}

fn client(address: &str) -> Key {
    Key::address(address.parse().unwrap())
}

fn from(address: &str) -> Request<()> {
    let mut request = Request::new(());
    let peer = Peer::from(address.parse::<std::net::SocketAddr>().unwrap());
    request.extensions_mut().insert(peer);
    request
}

#[test]
fn the_key_is_the_canonical_address_without_the_port() {
    for (peer, expected) in [
        ("203.0.113.9:1", "203.0.113.9"),
        ("[::ffff:203.0.113.9]:2", "203.0.113.9"),
        ("[64:ff9b::203.0.113.9]:3", "203.0.113.9"),
        ("[2001:db8:1::7]:4", "2001:db8:1::"),
        ("[fe80::7%3]:5", "fe80::7"),
        ("[::1]:6", "::1"),
    ] {
        assert_eq!(
            extract(PeerAddr, &from(peer)),
            Ok(client(expected)),
            "{peer}"
        );
    }
}

#[test]
fn the_prefix_for_ipv6_can_be_chosen_and_is_checked() {
    let peer = from("[2001:db8:1:2:3:4:5:6]:1");
    let wider = PeerAddr.ipv6_prefix(48);
    assert!(KeyExtractor::validate(&wider).is_ok());
    assert_eq!(extract(wider, &peer), Ok(client("2001:db8:1::")));
    let refusal = KeyExtractor::validate(&PeerAddr.ipv6_prefix(16)).unwrap_err();
    let expected = "ipv6_prefix: got 16, expected 32 to 128 bits";
    assert_eq!(refusal.to_string(), expected);
    let refused = AccessList::new().addresses(PeerAddr.ipv6_prefix(16), ["2001:db8::1"]);
    assert_eq!(refused.unwrap_err().to_string(), expected);
}

#[test]
fn in_a_list_the_address_is_looked_up_whole_whatever_the_prefix() {
    let request = from("[2001:db8:1:2:3:4:5:6]:1");
    let head = RequestHead::new(&request);
    let whole = Ok("2001:db8:1:2:3:4:5:6".parse().unwrap());
    assert_eq!(PeerAddr.address(&head), whole);
    assert_eq!(PeerAddr.ipv6_prefix(48).address(&head), whole);
}

#[test]
fn a_request_without_its_peer_is_explained() {
    let Err(KeyError::Misconfigured(text)) = extract(PeerAddr, &Request::new(())) else {
        panic!("the server is to blame");
    };
    for advice in [
        "into_make_service_with_connect_info::<SocketAddr>()",
        "feature `axum`",
        "`MockConnectInfo`",
        "feature `tonic`",
        "tower_throttle::Peer::Address",
        "hyper",
        "on axum over a Unix socket `Peer::UnixSocket`",
    ] {
        assert!(text.contains(advice), "{advice}: {text}");
    }
}

#[test]
fn a_unix_socket_has_no_peer_address() {
    let mut request = Request::new(());
    request.extensions_mut().insert(Peer::UnixSocket);
    let error = extract(PeerAddr, &request).unwrap_err();
    assert!(error.to_string().contains("`ClientAddr`"), "{error}");
}

#[cfg(feature = "axum")]
mod axum_provides {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::extract::Request;
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn connect_info_from_a_real_socket() {
        let app = Router::new().route(
            "/",
            get(async |request: Request| {
                let key = extract(PeerAddr, &request);
                (key == Ok(client("127.0.0.1"))).to_string()
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(axum::serve(listener, service).into_future());
        let body = reqwest::get(url).await.unwrap().text().await.unwrap();
        assert_eq!(body, "true");
        server.abort();
    }

    #[test]
    fn mock_connect_info_which_never_hides_the_real_one() {
        let mock: SocketAddr = "203.0.113.9:1".parse().unwrap();
        let real: SocketAddr = "198.51.100.1:1".parse().unwrap();
        let mut request = Request::new(());
        request.extensions_mut().insert(MockConnectInfo(mock));
        assert_eq!(extract(PeerAddr, &request), Ok(client("203.0.113.9")));
        request.extensions_mut().insert(ConnectInfo(real));
        assert_eq!(extract(PeerAddr, &request), Ok(client("198.51.100.1")));
        request.extensions_mut().insert(Peer::Address(mock));
        assert_eq!(extract(PeerAddr, &request), Ok(client("203.0.113.9")));
    }
}
