//! What is announced for later holds then, if nobody else asks.

use tower_throttle::Outcome;

use super::denial::retry_delay;
use super::history::History;
use super::request::{
    ASKED, ASKS_EARLY, Asked, CALLS_EARLY, CALLS_IN_TIME, LOOKS_AT_HEADERS_RESET, LOOKS_AT_RESET,
    LOOKS_BEFORE_RESET, TAKES_AT_RENEWAL, items, us,
};
use super::stage::{Event, How, Stage};

/// What is to be tried, and how long after the request.
type Trial = (u64, What);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The same request is denied.
    IsDenied,
    /// The same request is let through.
    IsLetThrough,
    /// The same for a call with a deadline.
    CallIsDenied,
    CallIsLetThrough,
    /// This policy has a permit.
    HasOne(usize),
    /// The client is as one that has never asked.
    IsUntouched(usize),
    IsNotYetUntouched(usize),
    /// Everything is back, by the headers of one value.
    IsWhole(usize),
}

pub(crate) async fn hold(stage: &Stage<'_>, asked: &Asked<'_>, history: &History) {
    let mut trials = retries(asked, history);
    trials.extend(calls_again(asked));
    trials.extend(renewals(stage, asked));
    trials.extend(whole_by_headers(stage, asked));
    let exact = asked.exact(stage).into_iter();
    for policy in exact.filter(|_| asked.tells_exact_resets) {
        let reset_us = us(asked.decision(policy).reset_after());
        trials.push((reset_us, What::IsUntouched(policy)));
        if let Some(before_us) = reset_us.checked_sub(1) {
            trials.push((before_us, What::IsNotYetUntouched(policy)));
        }
    }
    trials.sort_unstable();
    let mut now_us = 0;
    for (at_us, what) in trials {
        stage.bench.advance_us(at_us - now_us);
        now_us = at_us;
        let holds = holds(stage, asked, what, history.deadline_ms).await;
        let (response, events) = (&asked.response, &asked.events);
        assert!(
            holds,
            "{what:?} after {at_us} us: {response:#?} {events:#?}"
        );
    }
}

async fn holds(stage: &Stage<'_>, asked: &Asked<'_>, what: What, deadline_ms: u32) -> bool {
    let step = asked.step;
    let ask = async |client| stage.send(client, step, How::Http).await.status;
    let call = async |client| {
        let again = stage.send(client, step, How::GrpcWithin(deadline_ms)).await;
        again.is_denied_over_grpc()
    };
    match what {
        What::IsDenied => ask(ASKS_EARLY).await == 429,
        What::IsLetThrough => ask(ASKED).await == 200,
        What::CallIsDenied => call(CALLS_EARLY).await,
        What::CallIsLetThrough => !call(CALLS_IN_TIME).await,
        What::HasOne(policy) => {
            let taken = stage.check(TAKES_AT_RENEWAL, policy, step, 1).await;
            taken.is_allowed()
        }
        What::IsUntouched(policy) | What::IsWhole(policy) => {
            let client = match what {
                What::IsWhole(_) => LOOKS_AT_HEADERS_RESET,
                _ => LOOKS_AT_RESET,
            };
            let looked = stage.peek(client, policy, step).await;
            let untouched = stage.peek_untouched(policy).await;
            looked.remaining() == untouched.remaining()
                && looked.reset_after().is_zero()
                && looked.banned_for().is_none()
        }
        What::IsNotYetUntouched(policy) => {
            let looked = stage.peek(LOOKS_BEFORE_RESET, policy, step).await;
            us(looked.reset_after()) == 1
        }
    }
}

fn retries(asked: &Asked<'_>, history: &History) -> Vec<Trial> {
    let Some(rejection) = &asked.response.rejection else {
        return Vec::new();
    };
    let Some(wait) = rejection.retry_after() else {
        let day_us = 86_400_000_000;
        return vec![(day_us, What::IsDenied)];
    };
    let mut trials = Vec::new();
    if asked.are_alike {
        trials.push((us(wait) - 1, What::IsDenied));
    }
    // From memory, larger costs than lately may be denied for longer, and so may what a ban denies: the
    // limit behind it may be unknown.
    let is_remembered_ban = |event: &Event| {
        let decision = &event.decision;
        decision.is_remembered() && decision.banned_for().is_some()
    };
    let tells_all = history.are_equal && !asked.events.iter().any(is_remembered_ban);
    if !rejection.has_unasked_policies() && (tells_all || asked.are_alike) {
        trials.push((us(wait), What::IsLetThrough));
    }
    trials
}

fn calls_again(asked: &Asked<'_>) -> Vec<Trial> {
    let (within, is_exact) = &asked.within;
    let wait = match within.is_denied_over_grpc() {
        true => retry_delay(within).map(us),
        false => None,
    };
    let Some(wait_us) = wait else {
        return Vec::new();
    };
    let mut trials = vec![(wait_us - 1, What::CallIsDenied)];
    trials.extend(is_exact.then_some((wait_us, What::CallIsLetThrough)));
    trials
}

/// At `t`, if nothing remains. A request that may wait is let in before there is a permit.
fn renewals(stage: &Stage<'_>, asked: &Asked<'_>) -> Vec<Trial> {
    let quotas = items(asked.response.text("ratelimit"));
    let exact = asked.exact(stage);
    let mut trials = Vec::new();
    let shown = asked.shown(stage);
    assert_eq!(quotas.len(), shown.len());
    for (policy, (_, quota)) in shown.into_iter().zip(quotas) {
        let decision = asked.decision(policy);
        let may_wait = stage.policies[policy].delays() && !decision.is_allowed();
        if decision.remaining() == 0 && exact.contains(&policy) && !may_wait {
            trials.push((quota["t"] * 1_000_000, What::HasOne(policy)));
        }
    }
    trials
}

/// The headers of one value show one of the tightest policies, and a reset of it.
fn whole_by_headers(stage: &Stage<'_>, asked: &Asked<'_>) -> Option<Trial> {
    let number = |what: &str| {
        let [delta, draft_6] = ["x-ratelimit", "ratelimit"]
            .map(|family| asked.response.number(&format!("{family}-{what}")));
        assert_eq!(delta, draft_6);
        delta
    };
    let mut tightest = asked.shown(stage);
    let Some(limit) = number("limit") else {
        assert!(tightest.is_empty());
        return None;
    };
    let (remaining, reset) = (number("remaining")?, number("reset")?);
    let wait_us = |policy: usize| {
        let decision = asked.decision(policy);
        match decision.outcome() {
            Outcome::NeverFits => Some(u64::MAX),
            _ => decision.retry_after().map(us),
        }
    };
    let longest_us = tightest.iter().map(|policy| wait_us(*policy)).max()?;
    tightest.retain(|policy| wait_us(*policy) == longest_us);
    let left = |policy: &usize| asked.decision(*policy).remaining();
    let fewest = tightest.iter().map(left).min()?;
    tightest.retain(|policy| {
        let decision = asked.decision(*policy);
        let shown =
            (limit, remaining) == (decision.limit(), decision.remaining().min(decision.limit()));
        decision.remaining() == fewest && shown
    });
    assert!(
        !tightest.is_empty(),
        "{:?}: {:?}",
        asked.response,
        asked.events
    );
    if let Some(wait_us) = longest_us.filter(|us| *us < u64::MAX) {
        assert!(reset * 1_000_000 >= wait_us);
    }
    match tightest[..] {
        [policy] if asked.tells_exact_resets && asked.exact(stage).contains(&policy) => {
            Some((reset * 1_000_000, What::IsWhole(policy)))
        }
        _ => None,
    }
}
