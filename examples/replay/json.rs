//! Lines that are JSON objects, one on each.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderValue};
use http::{HeaderMap, Method, Uri};
use serde_json::Value;

use crate::combined::{add, said};
use crate::fields::Fields;
use crate::line::{Answer, Said};
use crate::time;

pub(crate) fn read(line: &str, fields: &Fields) -> Result<Said, String> {
    let line: Value = serde_json::from_str(line).map_err(|error| format!("is no JSON: {error}"))?;
    let optional = |name: &str| at(&line, name).and_then(text);
    let grpc_status = optional(&fields.grpc_status);
    Ok(Said {
        at: need(&line, "time", &fields.time, time::any)?,
        address: need(&line, "address", &fields.address, address)?,
        method: need(&line, "method", &fields.method, |method| {
            Method::from_bytes(method.as_bytes()).ok()
        })?,
        target: need(&line, "path", &fields.path, |path| Uri::try_from(path).ok())?,
        headers: headers(&line, fields),
        user: optional(&fields.user).map(Cow::into_owned),
        answer: Answer {
            status: need(&line, "status", &fields.status, |status| {
                status.parse().ok()
            })?,
            grpc_status: grpc_status.and_then(|status| HeaderValue::from_str(&status).ok()),
        },
    })
}

fn need<T>(
    line: &Value,
    what: &str,
    name: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    let text = at(line, name)
        .and_then(text)
        .ok_or_else(|| format!("has no field {name:?}, name it by --field {what}=<name>"))?;
    read(&text).ok_or_else(|| format!("has no {what} in its field {name:?}"))
}

/// The field of this name, which may itself have dots in it.
fn at<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        at(object.get(outer)?, inner)
    })
}

/// Of a list, as loggers write headers, the first.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => said(text).map(Cow::Borrowed),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Array(each) => text(each.first()?),
        _ => None,
    }
}

/// With or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port)
}

fn headers(line: &Value, fields: &Fields) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let named = fields.headers.iter().cloned();
    for (header, name) in named.chain([(HOST, fields.host.clone())]) {
        let each = match at(line, &name) {
            Some(Value::Array(each)) => each,
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        for value in each.iter().filter_map(text) {
            add(&mut headers, header.clone(), value.as_bytes());
        }
    }
    headers
}
