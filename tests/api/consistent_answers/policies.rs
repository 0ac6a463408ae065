//! Policies drawn at random.

use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::{
    CostError, CostExtractor, Header, Key, Limit, Mode, Penalty, Policy, Rate, RequestHead,
};

/// The most policies of a history.
pub(crate) const MOST: usize = 3;
pub(crate) const NAMES: [&str; MOST] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    kind: Kind,
    permits: u64,
    window_us: u64,
    /// Of a bucket, its capacity.
    burst: u64,
    /// How many more permits a further rate has, in how many times the window.
    further: Option<(u64, u64)>,
    /// The denials, within how long, and the ban.
    penalty: Option<(u32, u64, u64)>,
    max_wait_us: Option<u64>,
    slices: u32,
    pub(crate) is_shadow: bool,
    /// Whether each client has two keys.
    pub(crate) is_by_other: bool,
    pub(crate) has_tiers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Gcra,
    TokenBucket,
    Queue,
    Meter,
    FixedWindow,
    AlignedWindow,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
}

use Kind::*;

const KINDS: [Kind; 9] = [
    Gcra,
    TokenBucket,
    Queue,
    Meter,
    FixedWindow,
    AlignedWindow,
    SlidingLog,
    SlidingWindow,
    SlidingCounter,
];

/// Reads it from a header, which may say 0.
struct Stated(String);

impl CostExtractor for Stated {
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError> {
        Ok(request.headers[&self.0].to_str().unwrap().parse().unwrap())
    }
}

impl Drawn {
    pub(crate) fn is_a_window(&self) -> bool {
        matches!(self.kind, FixedWindow | AlignedWindow)
    }

    pub(crate) fn queues(&self) -> bool {
        self.kind == Queue
    }

    /// Whether callers can wait for its permits.
    pub(crate) fn can_wait(&self) -> bool {
        matches!(self.kind, Gcra | TokenBucket | Queue | Meter)
    }

    /// Whether it delays requests instead of denying them.
    pub(crate) fn delays(&self) -> bool {
        self.can_wait() && self.max_wait_us.is_some()
    }

    pub(crate) fn has_penalty(&self) -> bool {
        self.penalty.is_some()
    }

    /// With other numbers.
    pub(crate) fn changed(&self) -> Self {
        Self {
            permits: self.permits % 6 + 1,
            burst: self.burst % 8 + 1,
            window_us: match self.slices % 3 {
                0 => self.window_us / 2 + 1_000,
                1 => self.window_us * 3,
                _ => self.window_us,
            },
            ..self.clone()
        }
    }

    fn limit(&self) -> Limit {
        let window = Duration::from_micros(self.window_us);
        let (permits, rate) = (self.permits, Rate::new(self.permits, window));
        let limit = match self.kind {
            Gcra => Limit::gcra(permits, window).burst(self.burst),
            TokenBucket => return Limit::token_bucket(self.burst, rate),
            Queue => return Limit::leaky_bucket(self.burst, rate),
            Meter => return Limit::leaky_bucket(self.burst, rate).without_delay(),
            FixedWindow => Limit::fixed_window(permits, window),
            AlignedWindow => Limit::fixed_window(permits, window).aligned(),
            SlidingLog => Limit::sliding_log(permits, window),
            SlidingWindow => Limit::sliding_window(permits, window).slices(self.slices),
            SlidingCounter => Limit::sliding_counter(permits, window),
        };
        match self.further {
            Some((more, times)) => limit.and(permits + more, window * times as u32),
            None => limit,
        }
    }

    fn premium(&self) -> Limit {
        let premium = Self {
            permits: self.permits + 3,
            burst: self.burst + 2,
            ..self.clone()
        };
        premium.limit()
    }

    pub(crate) fn policy(&self, name: &str) -> Policy {
        let key = if self.is_by_other {
            "x-other"
        } else {
            "x-user"
        };
        let mut policy = Policy::new(name, self.limit())
            .by(Header::new(key))
            .cost_by(Stated(format!("x-cost-{name}")));
        if let Some((denials, within, ban)) = self.penalty {
            let [within, ban] = [within, ban].map(Duration::from_micros);
            policy = policy.penalty(Penalty::after(denials, within, ban));
        }
        if let Some(longest) = self.max_wait_us.filter(|_| self.can_wait()) {
            policy = policy.max_wait(Duration::from_micros(longest));
        }
        if self.has_tiers {
            let premium = self.premium();
            policy = policy.limit_by(move |request: &RequestHead<'_>, _: &Key| {
                request.headers.contains_key("x-premium").then_some(premium)
            });
        }
        if self.is_shadow {
            policy = policy.mode(Mode::Shadow);
        }
        policy
    }
}

fn drawn_policy(may_wait: bool) -> impl Strategy<Value = Drawn> {
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| may_wait || *kind != Queue)
        .collect();
    let windows = prop_oneof![
        Just(1_000_000_u64),
        Just(1_500_000_u64),
        Just(10_000_000_u64),
        Just(333_333_u64),
        1_000_u64..20_000_000,
    ];
    let numbers = (1_u64..7, windows, 1_u64..9, 1_u32..12);
    let further = prop::option::weighted(0.4, (1_u64..5, 2_u64..9));
    let times = (1_u32..4, 100_000_u64..30_000_000, 1_000_u64..30_000_000);
    let penalty = prop::option::weighted(0.3, times);
    let max_wait = prop::option::weighted(0.4, 1_000_u64..5_000_000)
        .prop_map(move |longest| longest.filter(|_| may_wait));
    let traits = [0.15, 0.3, 0.2].map(prop::bool::weighted);
    let drawn = (
        prop::sample::select(kinds),
        numbers,
        further,
        penalty,
        max_wait,
        traits,
    );
    drawn.prop_map(|(kind, numbers, further, penalty, max_wait_us, traits)| {
        let (permits, window_us, burst, slices) = numbers;
        let [is_shadow, is_by_other, has_tiers] = traits;
        Drawn {
            kind,
            permits,
            window_us,
            burst,
            further,
            penalty,
            max_wait_us,
            slices,
            is_shadow,
            is_by_other,
            has_tiers,
        }
    })
}

pub(crate) fn drawn_policies(may_wait: bool) -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec(drawn_policy(may_wait), 1..=MOST)
}
