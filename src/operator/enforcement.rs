//! `Enforcement`: whether requests are limited right now, and why not if they are not.

use crate::limiter::{Limiter, PolicySummary};
use crate::mode::Mode;
use crate::observer::BreakerState;
use crate::store::Consequences;

/// Whether requests are limited right now.
#[derive(serde::Serialize)]
pub(super) struct Enforcement {
    status: &'static str,
    /// Why it is not `full`, in words.
    reason: Option<String>,
}

impl Enforcement {
    pub(super) fn of(limiter: &Limiter, policies: &[PolicySummary]) -> Self {
        let enforced: Vec<_> = policies.iter().filter(is_enforced).collect();
        if !limiter.is_on() {
            return Self::none("limiting is turned off");
        }
        if policies.is_empty() {
            return Self::none("there is no policy");
        }
        if enforced.is_empty() {
            return Self::none(
                "no policy is enforced: each is in shadow mode, off or enforced for 0% of its keys",
            );
        }
        if limiter.breaker_state() == BreakerState::Closed {
            return Self {
                status: "full",
                reason: None,
            };
        }
        let why = limiter.outage().map_or_else(
            || "the store does not answer".to_owned(),
            |outage| outage.reason.to_string(),
        );
        let store = limiter.store_name();
        Self::without_store(&format!("{store}: {why}"), &enforced)
    }

    /// What the failure modes decide while the store is left alone.
    fn without_store(why: &str, enforced: &[&PolicySummary]) -> Self {
        let modes = enforced.iter();
        let modes = modes.map(|policy| (policy.name.clone(), policy.on_store_failure));
        let [open, closed, local] = Consequences(modes.collect())
            .groups()
            .map(|policies| policies.len());
        let consequences = [
            (open, "let everything pass", "lets everything pass"),
            (closed, "refuse everything", "refuses everything"),
            (
                local,
                "limit in this process alone",
                "limits in this process alone",
            ),
        ];
        let consequences = consequences.into_iter().filter(|(count, ..)| *count > 0);
        let consequences = consequences.map(|(count, many, one)| match count {
            1 => format!("1 policy {one}"),
            _ => format!("{count} policies {many}"),
        });
        let consequences = consequences.collect::<Vec<_>>().join(", ");
        Self {
            status: if open == enforced.len() {
                "none"
            } else {
                "partial"
            },
            reason: Some(format!("{why}: {consequences}")),
        }
    }

    fn none(reason: &str) -> Self {
        Self {
            status: "none",
            reason: Some(reason.to_owned()),
        }
    }
}

/// For some keys at least.
fn is_enforced(policy: &&PolicySummary) -> bool {
    policy.mode == Mode::Enforce && policy.enforced_for.get() > 0
}
