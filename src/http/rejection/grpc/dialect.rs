//! Which requests speak gRPC.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};

use crate::request::RequestHead;

/// No client's content type is longer. A client could make the answer's head so large that a proxy
/// takes it for a fault of the server, which it then asks no more, for anybody.
const LONGEST_ANSWERED: usize = 128;

/// Which gRPC a request speaks, as far as the answer depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http::rejection) enum Dialect {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web, which is answered in the request's own content type, unless that is too long.
    GrpcWeb(HeaderValue),
}

impl Dialect {
    /// `None` if the request is answered as plain HTTP.
    ///
    /// Only `POST` counts as gRPC, since gRPC clients send nothing else. tonic serves calls by any
    /// method, but any client can put the content type on a `GET`, and its denial must not become a
    /// 200, which everything on the way would take for a success.
    ///
    /// The HTTP version tells nothing: plain gRPC arrives over HTTP/1.1 from a gRPC-Web translation
    /// outside the layer, such as `tonic_web`'s, and gRPC-Web can be claimed over any version.
    pub(in crate::http::rejection) fn of(request: &RequestHead<'_>) -> Option<Self> {
        const GRPC: &[u8] = b"application/grpc";
        const WEB: &[u8] = b"-web";
        if *request.method != Method::POST {
            return None;
        }
        let content_type = request.headers.get(CONTENT_TYPE)?;
        let rest = after(content_type.as_bytes(), GRPC)?;
        if ends_or_goes_on(rest) {
            return Some(Self::Grpc);
        }
        let rest = after(rest, WEB)?;
        let (rest, plain) = match after(rest, b"-text") {
            Some(rest) => (rest, "application/grpc-web-text"),
            None => (rest, "application/grpc-web"),
        };
        ends_or_goes_on(rest).then(|| {
            Self::GrpcWeb(match content_type.len() {
                ..=LONGEST_ANSWERED => content_type.clone(),
                _ => HeaderValue::from_static(plain),
            })
        })
    }
}

/// Media types ignore case: RFC 9110, section 8.3.1.
fn after<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Whether the media type ends here, apart from a suffix (`+proto`) and parameters.
fn ends_or_goes_on(rest: &[u8]) -> bool {
    matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn dialect(content_type: &str) -> Option<Dialect> {
        let request = Request::post("/").header(CONTENT_TYPE, content_type);
        Dialect::of(&RequestHead::new(&request.body(()).unwrap()))
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
            "application/grpc ; charset=utf-8",
            "application/grpc\t; charset=utf-8",
            "Application/GRPC",
        ] {
            assert_eq!(dialect(content_type), Some(Dialect::Grpc), "{content_type}");
        }
        for content_type in [
            "application/json",
            "application/grpcx",
            "application/grpc-webby",
            "application",
            "",
        ] {
            assert_eq!(dialect(content_type), None, "{content_type}");
        }
        let without = Request::post("/").body(()).unwrap();
        assert_eq!(Dialect::of(&RequestHead::new(&without)), None);
    }

    #[test]
    fn grpc_web_is_answered_in_its_own_content_type() {
        for content_type in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web-text;charset=utf-8",
        ] {
            let own = HeaderValue::from_static(content_type);
            assert_eq!(dialect(content_type), Some(Dialect::GrpcWeb(own)));
        }
    }

    #[test]
    fn a_long_content_type_makes_no_long_answer() {
        for plain in ["application/grpc-web", "application/grpc-web-text"] {
            let longest = format!("{plain}+{}", "x".repeat(127 - plain.len()));
            for (content_type, answered) in [
                (longest.clone(), &*longest),
                (format!("{longest}x"), plain),
                (format!("{plain};{}", "a=b;".repeat(2_000)), plain),
            ] {
                let answered = HeaderValue::try_from(answered).unwrap();
                let expected = Some(Dialect::GrpcWeb(answered));
                assert_eq!(dialect(&content_type), expected, "{content_type}");
            }
        }
    }
}
