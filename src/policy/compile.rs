//! Validates a policy: every option in its range, and compatible with the others.

use std::time::Duration;

use super::compiled::CompiledPolicy;
use super::mistakes::Mistakes;
use super::rates::{ExtraRate, RateSet};
use super::{Cost, Policy, SETTLE, SETTLE_AT_END};
use crate::algorithm::{Algorithm, Wait};
use crate::error::ConfigError;
use crate::limit::{ANY_COST, MOST_PERMITS, Words};
use crate::mode::AtomicMode;
use crate::store::{DEFAULT_TIMEOUT, FailureMode, PolicyId, Prefetch};
use crate::task::RENEWALS_IN_A_LIFE;
use crate::time::DAY;

/// The most requests that the log of one key may remember: each is 15 bytes in Redis.
const MOST_ENTRIES: u64 = 1_000_000;

impl Policy {
    /// Validates everything, and prepares the policy for use. `timeout` is how long a decision may
    /// take.
    pub(crate) fn ready(
        self,
        otherwise: FailureMode,
        timeout: Duration,
    ) -> Result<CompiledPolicy, ConfigError> {
        let name = self.name.clone();
        self.ready_unnamed(otherwise, timeout)
            .map_err(|error| error.in_policy(&name))
    }

    fn ready_unnamed(
        self,
        otherwise: FailureMode,
        timeout: Duration,
    ) -> Result<CompiledPolicy, ConfigError> {
        validate_name("name", &self.name)?;
        if let Some(group) = &self.group {
            validate_name("group", group)?;
        }
        self.key.validate()?;
        self.on.iter().try_for_each(|on| on.validate())?;
        let id = match &self.group {
            Some(group) => PolicyId::new(&self.name).in_group(group),
            None => PolicyId::new(&self.name),
        };
        let rates = Algorithm::of_each_rate(&self.limit)?;
        for rate in &rates {
            self.refuse_algorithm(rate, timeout)?;
        }
        let extra_rates = rates.iter().skip(1);
        let extra_rates = extra_rates.map(|rate| ExtraRate::of(&id, rate));
        let penalty = self.penalty.as_ref().map(Algorithm::try_from).transpose()?;
        match &self.cost {
            Cost::Fixed(cost) if !(1..=MOST_PERMITS).contains(cost) => {
                return Err(ConfigError::out_of_range("cost", cost, ANY_COST));
            }
            // Whatever the cost, a limit of no rate admits nothing.
            Cost::Fixed(cost) if rates.iter().any(|rate| *cost > rate.capacity()) => {
                return Err(ConfigError::out_of_range(
                    "cost",
                    cost,
                    "at most the limit, or its burst or capacity: more is never available at once",
                ));
            }
            Cost::Fixed(_) => {}
            Cost::Read(cost) => cost.validate()?,
        }
        let wait = self.validate_wait()?;
        let prefetch = self.validate_prefetch()?;
        Ok(CompiledPolicy {
            rates: rates.first().copied().map(RateSet::own),
            extra_rates: extra_rates.collect(),
            hold: id.with_hold(),
            id: id.with_prefetch(prefetch),
            wait,
            penalty,
            on_store_failure: self.on_store_failure.unwrap_or(otherwise).valid()?,
            mode: AtomicMode::new(self.mode, self.enforce_for),
            mistakes: Mistakes::default(),
            timeout,
            policy: self,
        })
    }

    /// Refuses an algorithm, of a rate of the policy's own limit or of one that was chosen for a
    /// request, that some option of the policy is not for, or that could not hold its promise.
    pub(super) fn refuse_algorithm(
        &self,
        algorithm: &Algorithm,
        timeout: Duration,
    ) -> Result<(), ConfigError> {
        if self.max_wait.is_some() && !algorithm.can_wait() {
            return Err(ConfigError::not_for(
                "max_wait",
                "gcra, token_bucket and leaky_bucket",
            ));
        }
        if self.prefetch.is_some() && !algorithm.can_be_late() {
            return Err(ConfigError::not_for(
                "prefetch",
                "gcra, token_bucket, fixed_window and a leaky_bucket without delay",
            ));
        }
        if let Some(lease) = algorithm.lease() {
            self.refuse_to_settle(algorithm)?;
            refuse_short_lease(lease.to_duration(), timeout)?;
        }
        self.refuse_long_log(algorithm)
    }

    fn refuse_to_settle(&self, algorithm: &Algorithm) -> Result<(), ConfigError> {
        let Some(settle) = &self.settle else {
            return Ok(());
        };
        Err(ConfigError::malformed(
            settle.option,
            format!("a limit of {}", algorithm.name()),
            "a concurrency limit gets its permits back when the request ends, so there is nothing to \
             settle",
        ))
    }

    /// Refuses a log that may grow until it fills the store. Where each request says what it costs,
    /// that is not known: there the documentation warns of it.
    fn refuse_long_log(&self, algorithm: &Algorithm) -> Result<(), ConfigError> {
        let Cost::Fixed(cost) = self.cost else {
            return Ok(());
        };
        let may_cost_more = self
            .settle
            .as_ref()
            .is_some_and(|settle| [SETTLE, SETTLE_AT_END].contains(&settle.option));
        let most = MOST_ENTRIES.saturating_mul(cost);
        if may_cost_more || !algorithm.is_log() || algorithm.capacity() <= most {
            return Ok(());
        }
        Err(ConfigError::malformed(
            "limit",
            format!("a sliding log of {} permits", algorithm.capacity()),
            format!(
                "it has an entry for each request, of which a key may have {MOST_ENTRIES}; a \
                 sliding window takes little memory whatever its limit, or let a request cost more"
            ),
        ))
    }

    fn validate_wait(&self) -> Result<Wait, ConfigError> {
        let Some(longest) = self.max_wait else {
            return Ok(Wait::None);
        };
        if !(Duration::from_millis(1)..=DAY).contains(&longest) {
            return Err(ConfigError::out_of_range(
                "max_wait",
                format_args!("{longest:?}"),
                "1 ms to 24 h",
            ));
        }
        Ok(Wait::Strict(longest.into()))
    }

    fn validate_prefetch(&self) -> Result<Option<Prefetch>, ConfigError> {
        let Some(prefetch) = self.prefetch else {
            return Ok(None);
        };
        let others = [
            ("several rates", self.limit.rates().count() > 1),
            ("max_wait", self.max_wait.is_some()),
            ("penalty", self.penalty.is_some()),
            (
                self.settle.as_ref().map_or(SETTLE, |settle| settle.option),
                self.settle.is_some(),
            ),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, is_said)| *is_said) {
            return Err(ConfigError::malformed(
                "prefetch",
                format!("a policy with {other}"),
                format!("{other} needs the store for each request, leave one of the two out"),
            ));
        }
        prefetch.valid().map(Some)
    }
}

/// Refuses a lease that may lapse before the first renewal is answered, even though the store is as
/// fast as is expected of it. A timeout above the default does not count: it says for how long a
/// caller would wait, not for how long callers do.
fn refuse_short_lease(lease: Duration, timeout: Duration) -> Result<(), ConfigError> {
    let shortest = timeout.min(DEFAULT_TIMEOUT) * RENEWALS_IN_A_LIFE;
    if lease >= shortest {
        return Ok(());
    }
    Err(ConfigError::malformed(
        "lease",
        Words(lease).to_string(),
        format!(
            "expected at least {}: it is renewed every third of its life, and lapses if that takes \
             too long",
            Words(shortest)
        ),
    ))
}

fn validate_name(field: &'static str, name: &str) -> Result<(), ConfigError> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if name.is_empty() || name.len() > 64 || !name.bytes().all(printable) {
        return Err(ConfigError::out_of_range(
            field,
            format_args!("{name:?}"),
            "1 to 64 printable ASCII characters",
        ));
    }
    Ok(())
}
