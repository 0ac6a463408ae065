//! `ReadyPolicy`: a policy that was found sound, and what it makes of a request.

use std::time::Duration;

use super::mutable::Mutable;
use super::{Cost, OnMissingKey, Policy};
use crate::algorithm::{Action, Algorithm, Patience};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::key::{Key, Subject};
use crate::limit::Limit;
use crate::mode::Mode;
use crate::request::{KeyError, RequestHead};
use crate::response::ResponseHead;
use crate::store::{Check, FailureMode, PolicyId, QuotaLease};
use crate::time::DAY;

impl Policy {
    /// Checks everything, and readies the policy for work.
    pub(crate) fn ready(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        let name = self.name.clone();
        self.ready_unnamed(otherwise)
            .map_err(|error| error.in_policy(&name))
    }

    fn ready_unnamed(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(printable) {
            return Err(ConfigError::out_of_range(
                "name",
                format_args!("{:?}", self.name),
                "1 to 64 printable ASCII characters",
            ));
        }
        self.key.validate()?;
        self.on.iter().try_for_each(|on| on.validate())?;
        let algorithm = Algorithm::try_from(&self.limit)?;
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
            Cost::Fixed(cost) if *cost > algorithm.capacity() => {
                return Err(ConfigError::out_of_range(
                    "cost",
                    cost,
                    "no more than there ever are at once: the limit, or its burst or capacity",
                ));
            }
            Cost::Fixed(_) => {}
            Cost::Read(cost) => cost.validate()?,
        }
        Ok(ReadyPolicy {
            id: PolicyId::new(&self.name).with_quota_lease(self.sound_quota_lease(&algorithm)?),
            algorithm,
            patience,
            penalty,
            on_store_failure: self.on_store_failure.unwrap_or(otherwise).sound()?,
            mode: Mutable::new(self.mode),
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

/// A policy that was found sound.
pub(crate) struct ReadyPolicy {
    pub(crate) id: PolicyId,
    /// That of the policy's own limit.
    pub(crate) algorithm: Algorithm,
    /// What to do with a request that does not fit yet.
    pub(crate) patience: Patience,
    pub(crate) penalty: Option<Algorithm>,
    pub(crate) on_store_failure: FailureMode,
    /// The one that is in force.
    mode: Mutable,
    policy: Policy,
}

impl ReadyPolicy {
    /// The policy's own limit, as it was said.
    pub(crate) fn limit(&self) -> &Limit {
        &self.policy.limit
    }

    /// The mode that is in force.
    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// Takes the place of a policy of the same name, whose mode may have been set since.
    pub(crate) fn succeed(&self, before: &Self) {
        if self.policy.mode == before.policy.mode {
            self.set_mode(before.mode());
        }
    }

    /// The cost outside of HTTP, where no request states one.
    pub(crate) fn default_cost(&self) -> u32 {
        match self.policy.cost {
            Cost::Fixed(cost) => cost,
            Cost::Read(_) => 1,
        }
    }

    /// Whether the policy is about this request.
    pub(crate) fn applies(&self, request: &RequestHead<'_>) -> bool {
        let on = &self.policy.on;
        on.is_empty() || on.iter().any(|on| on.matches(request))
    }

    /// Whose quota a request uses that the policy is about; `None` when it has no key and the
    /// policy does not mind.
    pub(crate) fn key(&self, request: &RequestHead<'_>) -> Result<Option<Key>, Unreadable> {
        match (self.policy.key.extract(request), self.policy.on_missing_key) {
            (Ok(key), _) => Ok(Some(key)),
            (Err(KeyError::Missing), OnMissingKey::Shared) => Ok(Some(Key::missing())),
            (Err(KeyError::Missing), OnMissingKey::Skip) => Ok(None),
            (Err(KeyError::Missing), OnMissingKey::Reject) => Err(Unreadable::NoKey),
            (Err(KeyError::Misconfigured(text)), _) => {
                Err(Unreadable::Misconfigured(text.into_owned()))
            }
        }
    }

    /// What else of a request with this key.
    pub(crate) fn read(&self, request: &RequestHead<'_>, key: Key) -> Result<Read, Unreadable> {
        let cost = match &self.policy.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Read(cost) => cost
                .cost(request)
                .map_err(|error| Unreadable::BadCost(error.to_string()))?,
        };
        let algorithm = self.algorithm_for(request, &key)?;
        Ok(Read {
            key,
            algorithm,
            cost,
        })
    }

    fn algorithm_for(&self, request: &RequestHead<'_>, key: &Key) -> Result<Algorithm, Unreadable> {
        let chosen = self.policy.limit_by.as_ref();
        let Some(limit) = chosen.and_then(|choose| choose.limit(request, key)) else {
            return Ok(self.algorithm);
        };
        if limit == self.policy.limit {
            return Ok(self.algorithm);
        }
        let algorithm = Algorithm::try_from(&limit)
            .map_err(|error| Unreadable::Misconfigured(format!("limit_by: {error}")))?;
        // What was found sound for the policy's own limit holds for all limits of its kind.
        if algorithm.name() != self.algorithm.name() {
            return Err(Unreadable::Misconfigured(format!(
                "limit_by: got a limit of {}, expected one of {} as the policy's own",
                algorithm.name(),
                self.algorithm.name()
            )));
        }
        Ok(algorithm)
    }

    /// Whether what a request has taken of this limit may be given back, or settled, later on.
    pub(crate) fn may_give_back(&self, algorithm: &Algorithm) -> bool {
        self.policy.settle.is_some()
            || algorithm.lease().is_some()
            || algorithm.delays()
            || self.patience != Patience::None
    }

    /// The check that does something with the policy's permits.
    pub(crate) fn check(
        &self,
        subject: Subject,
        algorithm: Algorithm,
        action: Action,
        is_shadow: bool,
    ) -> Check<'_> {
        Check {
            policy: &self.id,
            subject,
            algorithm,
            action,
            is_shadow,
            on_store_failure: self.on_store_failure,
        }
    }

    /// The same in this mode, with that of the penalty behind it where there is one.
    pub(crate) fn checks(
        &self,
        subject: Subject,
        algorithm: Algorithm,
        action: Action,
        mode: Mode,
    ) -> impl Iterator<Item = Check<'_>> {
        let is_shadow = mode == Mode::Shadow;
        let check = move |algorithm, action| self.check(subject, algorithm, action, is_shadow);
        let penalty = self.penalty.map(|penalty| {
            let action = match action {
                Action::Reset => action,
                Action::Take(take) => Action::take(take.cost.min(1)),
                _ => Action::look(),
            };
            check(penalty, action)
        });
        std::iter::once(check(algorithm, action)).chain(penalty)
    }

    /// The policy's decision, of the decisions on its checks, which come next.
    pub(crate) fn decision<'a>(&self, each: &mut impl Iterator<Item = &'a Decision>) -> Decision {
        let decision = *each.next().expect("every check is answered");
        match self.penalty.and_then(|_| each.next()) {
            Some(penalty) => decision.under(penalty),
            None => decision,
        }
    }

    /// The cost that a request turns out to have, which was charged so much.
    pub(crate) fn settled_cost(&self, response: &ResponseHead<'_>, charged: u32) -> u32 {
        let settle = self.policy.settle.as_ref();
        settle.map_or(charged, |settle| (settle.cost)(response, charged))
    }
}

/// What a policy has read of a request.
pub(crate) struct Read {
    pub(crate) key: Key,
    pub(crate) algorithm: Algorithm,
    pub(crate) cost: u32,
}

/// Why a request cannot be judged at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not say whose it is, and the policy insists.
    NoKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what the key needs.
    Misconfigured(String),
}
