//! Validates a policy: every option in its range, and compatible with the others.

use std::time::Duration;

use super::atomic_mode::AtomicMode;
use super::mistakes::Mistakes;
use super::rates::{self, FurtherRate};
use super::ready::ReadyPolicy;
use super::{Cost, Policy};
use crate::algorithm::{Algorithm, Patience};
use crate::error::ConfigError;
use crate::store::{FailureMode, PolicyId, QuotaLease};
use crate::time::DAY;

impl Policy {
    /// Validates everything, and prepares the policy for use.
    pub(crate) fn ready(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        let name = self.name.clone();
        self.ready_unnamed(otherwise)
            .map_err(|error| error.in_policy(&name))
    }

    fn ready_unnamed(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        sound_name("name", &self.name)?;
        if let Some(group) = &self.group {
            sound_name("group", group)?;
        }
        self.key.validate()?;
        self.on.iter().try_for_each(|on| on.validate())?;
        let id = match &self.group {
            Some(group) => PolicyId::new(&self.name).in_group(group),
            None => PolicyId::new(&self.name),
        };
        let (algorithm, further_rates) = rates::of_policy(&id, &self.limit)?;
        if self.group.is_some() && !algorithm.packs() {
            return Err(ConfigError::not_for(
                "group",
                "all limits but sliding_log and concurrency",
            ));
        }
        let capacity = least_capacity(&algorithm, &further_rates);
        let penalty = self.penalty.as_ref().map(Algorithm::try_from).transpose()?;
        let patience = self.sound_patience(&algorithm)?;
        if let Some(settle) = &self.settle
            && algorithm.lease().is_some()
        {
            return Err(ConfigError::malformed(
                settle.option,
                format!("a limit of {}", algorithm.name()),
                "what is held while a request runs is given back when it ends; there is nothing to \
                 settle",
            ));
        }
        match &self.cost {
            Cost::Fixed(0) => return Err(ConfigError::out_of_range("cost", 0, "1 to 4294967295")),
            Cost::Fixed(cost) if *cost > capacity => {
                return Err(ConfigError::out_of_range(
                    "cost",
                    cost,
                    "at most what there ever is at once: the limit, or its burst or capacity",
                ));
            }
            Cost::Fixed(_) => {}
            Cost::Read(cost) => cost.validate()?,
        }
        let quota_lease = self.sound_quota_lease(&algorithm)?;
        Ok(ReadyPolicy {
            id: id.with_quota_lease(quota_lease),
            algorithm,
            further_rates,
            patience,
            penalty,
            on_store_failure: self.on_store_failure.unwrap_or(otherwise).sound()?,
            mode: AtomicMode::new(self.mode),
            mistakes: Mistakes::default(),
            policy: self,
        })
    }

    fn sound_patience(&self, algorithm: &Algorithm) -> Result<Patience, ConfigError> {
        let Some(longest) = self.max_wait else {
            return Ok(Patience::None);
        };
        if !algorithm.can_wait() {
            return Err(ConfigError::not_for(
                "max_wait",
                "gcra, token_bucket and leaky_bucket",
            ));
        }
        if !(Duration::from_millis(1)..=DAY).contains(&longest) {
            return Err(ConfigError::out_of_range(
                "max_wait",
                format_args!("{longest:?}"),
                "1 ms to 24 h",
            ));
        }
        Ok(Patience::UntilItFits(longest.into()))
    }

    fn sound_quota_lease(&self, algorithm: &Algorithm) -> Result<Option<QuotaLease>, ConfigError> {
        let Some(lease) = self.quota_lease else {
            return Ok(None);
        };
        if !algorithm.can_be_late() {
            return Err(ConfigError::not_for(
                "quota_lease",
                "gcra, token_bucket, fixed_window and a leaky_bucket without delay",
            ));
        }
        let others = [
            ("several rates", self.limit.rates().count() > 1),
            ("max_wait", self.max_wait.is_some()),
            ("penalty", self.penalty.is_some()),
            (
                self.settle
                    .as_ref()
                    .map_or("settle", |settle| settle.option),
                self.settle.is_some(),
            ),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, is_said)| *is_said) {
            return Err(ConfigError::malformed(
                "quota_lease",
                format!("a policy with {other}"),
                format!("{other} needs the store for each request, leave one of the two out"),
            ));
        }
        lease.sound().map(Some)
    }
}

/// What fits every rate.
pub(super) fn least_capacity(first: &Algorithm, further: &[FurtherRate]) -> u32 {
    let further = further.iter().map(FurtherRate::capacity);
    further.fold(first.capacity(), u32::min)
}

fn sound_name(field: &'static str, name: &str) -> Result<(), ConfigError> {
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
