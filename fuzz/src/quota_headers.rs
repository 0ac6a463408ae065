//! Quota headers, and `Retry-After`: what a layer tells after whatever history.
//!
//! One byte tells how many policies; each is read from nine bytes and its name; then every step
//! is how far the clock goes on, and the cost of a request.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderMap, Request, Response};
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tower::{Layer, Service, service_fn};
use tower_throttle::{
    Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, QuotaHeaders, Rate, RateLimitLayer,
    Rejection, RejectionKind, RequestHead,
};

use super::source::Source;

/// A year with all its digits, for the headers that tell the time.
const START: Micros = Micros::new(4_102_444_800_000_000);

#[derive(Debug)]
struct Told {
    name: String,
    /// Whether it tells all of its quota until an end that is fixed.
    is_fixed_window: bool,
}

/// Every response tells every policy, in fields that are Structured Fields, and promises no more
/// than the quota; the promise of a denial, that the same request fits later, is put to the test.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let clock = ManualClock::at(START);
    let count = 1 + source.byte() % 4;
    let policies: Vec<_> = (0..count).map(|_| policy(&mut source)).collect();
    let names: HashSet<_> = policies.iter().map(|(told, _, _)| &told.name).collect();
    if names.len() < policies.len() {
        return;
    }
    let (told, limits): (Vec<_>, Vec<_>) = policies
        .into_iter()
        .map(|(told, limit, base)| (told, (limit, base)))
        .unzip();
    let each = told.iter().zip(limits).map(|(told, (limit, base))| {
        let cost = move |request: &RequestHead<'_>| match request.extensions.get::<u64>() {
            Some(cost) => base.saturating_mul(*cost),
            None => base,
        };
        Policy::new(told.name.as_str(), limit).cost_by(cost)
    });
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let Ok(limiter) = Limiter::new(store, each) else {
        return;
    };
    let hello =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let mut service = RateLimitLayer::new(limiter)
        .headers(QuotaHeaders::DRAFT_11)
        .wrap_body()
        .layer(hello);
    let mut ask = |cost: u64| {
        let mut request = Request::new(());
        request.extensions_mut().insert(cost);
        let answer = service.call(request).now_or_never();
        let Ok(response) = answer.expect("the store answers at once");
        response.into_parts().0
    };

    for _ in 0..64 {
        if source.is_empty() {
            return;
        }
        let (choice, cost) = (source.byte(), u64::from(source.byte()));
        clock.advance(Duration::from_micros(
            u64::from(source.u32()) << (choice % 8),
        ));
        let head = ask(cost);
        let rejection = head.extensions.get::<Rejection>();
        check(&told, &head.headers, rejection);
        let secs = rejection.and_then(Rejection::retry_after_secs);
        if let Some(secs) = secs
            && choice & 0x80 != 0
        {
            clock.advance(Duration::from_secs(secs));
            let later = ask(cost);
            assert_eq!(later.status, 200, "{told:?}: denied after {secs} s");
            check(&told, &later.headers, None);
        }
    }
}

/// A policy, what will be told of it, and what a request of cost 1 costs there.
fn policy(source: &mut Source<'_>) -> (Told, Limit, u64) {
    let (kind, shape) = (source.byte(), source.byte());
    let permits = match shape % 4 {
        0 => u64::from(source.u32()).max(1) << (kind % 16),
        _ => 1 + u64::from(source.u32()) % 100,
    };
    let us = match shape / 4 % 3 {
        0 => 1_000 + u64::from(source.u32()),
        _ => 1_000_000 * u64::from(1 + source.u32() % 4_000),
    };
    let time = Duration::from_micros(us);
    let rate = Rate::new(1 + permits / 3, time);
    let limit = match kind % 8 {
        0 => Limit::gcra(permits, time),
        1 => Limit::gcra(permits, time).burst(1 + u64::from(shape)),
        2 => Limit::token_bucket(permits, rate),
        3 => Limit::leaky_bucket(permits, rate).without_delay(),
        4 => Limit::fixed_window(permits, time),
        5 => Limit::sliding_window(permits, time),
        6 => Limit::sliding_counter(permits, time),
        _ => Limit::sliding_log(permits, time),
    };
    let length = 1 + source.byte() % 64;
    let printable = |byte: &u8| char::from(b' ' + byte % 95);
    let told = Told {
        name: source.take(length.into()).iter().map(printable).collect(),
        is_fixed_window: kind % 8 == 4,
    };
    (told, limit, 1 + u64::from(kind >> 6))
}

fn check(told: &[Told], headers: &HeaderMap, rejection: Option<&Rejection>) {
    let retry_after = headers.get("retry-after").map(|secs| {
        let secs = secs.to_str().expect("digits");
        secs.parse::<i128>().expect("whole seconds")
    });
    assert_eq!(
        retry_after.is_some(),
        rejection.is_some_and(|rejection| { rejection.kind() != RejectionKind::NeverFits })
    );
    assert!(retry_after.is_none_or(|secs| secs >= 1));
    let (policies, quotas) = (
        list(headers, "ratelimit-policy"),
        list(headers, "ratelimit"),
    );
    assert_eq!((policies.len(), quotas.len()), (told.len(), told.len()));
    for (told, (policy, quota)) in told.iter().zip(policies.iter().zip(&quotas)) {
        assert_eq!((name(policy), name(quota)), (&*told.name, &*told.name));
        let [q, w] = ["q", "w"].map(|key| parameter(policy, key));
        let [r, t] = ["r", "t"].map(|key| parameter(quota, key));
        assert!(q >= 1 && w >= 1 && r >= 0 && t >= 1);
        let denies = rejection.is_some_and(|rejection| rejection.policies().contains(&told.name));
        match retry_after {
            // What remains did not suffice for what was asked, and `t` is the wait at most.
            Some(secs) if denies => assert!(secs >= t, "{headers:?}"),
            _ => assert!(told.is_fixed_window || r * w <= q * t, "{headers:?}"),
        }
    }
}

fn list(headers: &HeaderMap, field: &str) -> Vec<Item> {
    let [field] = headers.get_all(field).iter().collect::<Vec<_>>()[..] else {
        panic!("{field} in {headers:?}");
    };
    let list: List = Parser::new(field.as_bytes()).parse().expect("a list");
    let items = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an inner list in {field:?}"),
    });
    items.collect()
}

fn name(item: &Item) -> &str {
    match &item.bare_item {
        BareItem::String(name) => name.as_str(),
        other => panic!("{other:?} is no string"),
    }
}

fn parameter(item: &Item, key: &str) -> i128 {
    assert_eq!(item.params.len(), 2);
    match item.params.get(key) {
        Some(BareItem::Integer(number)) => i64::from(*number).into(),
        other => panic!("{key} is {other:?}"),
    }
}
