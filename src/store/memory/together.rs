//! Several checks of one question, all or nothing.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::shard::{Shard, Shards};
use super::slot::{Fingerprint, Slot};
use crate::algorithm::{Ask, Reading, all_enforced_fit, committed_if, decide, granted};
use crate::decision::{Decision, Decisions};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Check, FailureMode};
use crate::time::Micros;

/// The checks whose keys find no room, and why.
type WithoutRoom = SmallVec<[(usize, StoreErrorKind); 1]>;

/// The checks of one question, with the shards of their keys locked.
pub(super) struct Together<'s, 'a> {
    checks: &'a [Check<'a>],
    fingerprints: SmallVec<[Fingerprint; 4]>,
    /// The shards, ascending, each once.
    homes: SmallVec<[usize; 4]>,
    locked: SmallVec<[MutexGuard<'s, Shard>; 4]>,
    /// For each check, the position of its shard among these.
    places: SmallVec<[usize; 4]>,
    now: Micros,
}

impl<'s, 'a> Together<'s, 'a> {
    pub(super) fn lock(shards: &'s Shards, checks: &'a [Check<'a>], now: Micros) -> Self {
        let fingerprints: SmallVec<[Fingerprint; 4]> = checks
            .iter()
            .map(|check| shards.fingerprint(check))
            .collect();
        // All questions lock in this order, so that no two deadlock.
        let mut homes: SmallVec<[usize; 4]> =
            fingerprints.iter().map(|&key| Shards::home(key)).collect();
        homes.sort_unstable();
        homes.dedup();
        let place = |&key: &Fingerprint| homes.partition_point(|&home| home < Shards::home(key));
        Self {
            checks,
            places: fingerprints.iter().map(place).collect(),
            fingerprints,
            locked: homes.iter().map(|&home| shards.lock(home)).collect(),
            homes,
            now,
        }
    }

    /// How many permits there are, if the checks take fewer than they are for.
    pub(super) fn granted(&mut self) -> Option<u64> {
        let mut checks = self.checks.iter();
        if !checks.any(|check| check.action.takes_fewer()) {
            return None;
        }
        granted(self.asks(), &self.read_all())
    }

    /// Asks these in place of the checks, about the same keys.
    pub(super) fn replace_checks(&mut self, checks: &'a [Check<'a>]) {
        self.checks = checks;
    }

    /// Decides, and carries out all checks if all of them fit.
    ///
    /// # Errors
    ///
    /// If the request fits but an enforced key finds no room, and its policy does not let requests
    /// pass in that case. Nothing is changed then.
    pub(super) fn ask(&mut self) -> Result<Decisions, StoreError> {
        let mut readings = self.read_all();
        let all_fit = all_enforced_fit(self.asks(), &readings);
        let committed = committed_if(all_fit, self.asks(), &readings);
        let mut without_room = WithoutRoom::new();
        if all_fit {
            without_room = self.let_in(&committed)?;
        } else {
            // The request is denied in any case. If a penalty's key finds no room, its denial is
            // not counted.
            self.let_in_each(&committed, false);
        }
        without_room.extend(self.let_in_each(&committed, true));
        for (position, committed) in committed.into_iter().enumerate() {
            if committed || !readings[position].fits {
                readings[position] = self.commit(position, readings[position]);
            }
        }
        let mut decisions = decide(self.asks(), &readings);
        for (position, decision) in decisions.iter().enumerate() {
            self.note(position, decision);
        }
        for (position, kind) in without_room {
            decisions.fail_open(position, kind);
        }
        Ok(decisions)
    }

    fn asks(&self) -> impl Iterator<Item = Ask<'a>> + Clone + use<'a> {
        self.checks.iter().map(Check::ask)
    }

    /// Counts the question at the first of its shards. Returns that shard's index and its count.
    pub(super) fn count(&mut self) -> (usize, u32) {
        match (self.homes.first(), self.locked.first_mut()) {
            (Some(&home), Some(shard)) => (home, shard.count()),
            _ => (0, 0),
        }
    }

    fn find(&mut self, position: usize) -> Option<&mut Slot> {
        self.locked[self.places[position]].find(self.fingerprints[position])
    }

    fn read_all(&mut self) -> SmallVec<[Reading; 4]> {
        let positions = 0..self.checks.len();
        positions.map(|position| self.read(position)).collect()
    }

    fn read(&mut self, position: usize) -> Reading {
        let (check, now) = (&self.checks[position], self.now);
        let algorithm = &check.algorithm;
        match self.find(position) {
            Some(slot) => {
                slot.used();
                algorithm.read(&slot.state, now, &check.action)
            }
            None => algorithm.read(&algorithm.untouched(), now, &check.action),
        }
    }

    /// Inserts every new enforced key that is about to be charged. Returns those that find no room
    /// although their policies let requests pass in that case. If another one finds no room, none
    /// is inserted: an earlier one must not stay charged.
    fn let_in(&mut self, committed: &[bool]) -> Result<WithoutRoom, StoreError> {
        let mut entered: SmallVec<[usize; 4]> = SmallVec::new();
        let mut without_room = WithoutRoom::new();
        for position in self.entering(committed, false) {
            let may_pass = self.checks[position].on_store_failure == FailureMode::Allow;
            match self.insert(position) {
                Ok(()) => entered.push(position),
                Err(error) if may_pass => without_room.push((position, error.kind())),
                Err(error) => {
                    for position in entered {
                        self.locked[self.places[position]].remove(self.fingerprints[position]);
                    }
                    return Err(error);
                }
            }
        }
        Ok(without_room)
    }

    /// Inserts new keys one by one. Returns those that find no room.
    fn let_in_each(&mut self, committed: &[bool], is_shadow: bool) -> WithoutRoom {
        let entering = self.entering(committed, is_shadow).into_iter();
        entering
            .filter_map(|position| Some((position, self.insert(position).err()?.kind())))
            .collect()
    }

    /// The checks that are carried out and have no key yet.
    fn entering(&mut self, committed: &[bool], is_shadow: bool) -> SmallVec<[usize; 4]> {
        let checks = self.checks.iter().enumerate();
        checks
            .filter(|(position, check)| {
                check.is_shadow == is_shadow
                    && committed[*position]
                    && check.action.leaves_state()
                    && self.find(*position).is_none()
            })
            .map(|(position, _)| position)
            .collect()
    }

    fn insert(&mut self, position: usize) -> Result<(), StoreError> {
        let untouched = self.checks[position].algorithm.untouched();
        let slot = Slot::new(self.fingerprints[position], untouched);
        self.locked[self.places[position]].insert(slot, self.now, &self.fingerprints)
    }

    fn commit(&mut self, position: usize, reading: Reading) -> Reading {
        let (check, now) = (&self.checks[position], self.now);
        match self.find(position) {
            Some(slot) => {
                let algorithm = &check.algorithm;
                algorithm.commit(&mut slot.state, now, &check.action, reading)
            }
            None => reading,
        }
    }

    fn note(&mut self, position: usize, decision: &Decision) {
        let shard = &mut self.locked[self.places[position]];
        let (fingerprint, check) = (self.fingerprints[position], &self.checks[position]);
        shard.note(fingerprint, check, decision, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Action, Algorithm, Penalty};
    use crate::decision::Outcome;
    use crate::key::Key;
    use crate::limit::Limit;
    use crate::store::PolicyId;
    use crate::time::MINUTE;

    const NOW: Micros = Micros::new(1_000_000);

    #[test]
    fn a_subject_that_is_denied_stays_so_when_there_is_no_room_to_count_it() {
        let shards = Shards::new(1);
        let policy = PolicyId::new("login");
        let guarded = Algorithm::try_from(&Limit::gcra(1, MINUTE)).unwrap();
        let penalty = Algorithm::try_from(&Penalty::after(2, MINUTE, MINUTE)).unwrap();
        let checks = [guarded, penalty].map(|algorithm| Check {
            policy: &policy,
            subject: Key::from("alice").subject(None),
            algorithm,
            action: Action::acquire(1),
            is_shadow: false,
            on_store_failure: FailureMode::Allow,
        });
        let ask = || Together::lock(&shards, &checks, NOW).ask();
        assert!(ask().unwrap().all_allow());
        for _ in 0..3 {
            assert!(!ask().unwrap()[0].is_allowed());
        }
    }

    #[test]
    fn a_key_that_was_let_in_leaves_again_when_a_later_one_finds_no_room() {
        let shards = Shards::new(1);
        let policy = PolicyId::new("api");
        let check = |key: u64| Check::of(&policy, key, &Limit::gcra(1, MINUTE), Action::acquire(1));
        let home = |key: u64| Shards::home(shards.fingerprint(&check(key)));
        let exhausted = 0;
        let crowded_out = (1..).find(|&key| home(key) == home(exhausted)).unwrap();
        let elsewhere = (1..).find(|&key| home(key) != home(exhausted)).unwrap();
        let ask = |keys: &[u64]| {
            let checks: Vec<Check<'_>> = keys.iter().map(|&key| check(key)).collect();
            Together::lock(&shards, &checks, NOW).ask()
        };
        assert!(ask(&[exhausted]).unwrap().all_allow());
        for keys in [[elsewhere, crowded_out], [crowded_out, elsewhere]] {
            assert_eq!(ask(&keys).unwrap_err().kind(), StoreErrorKind::Full);
            assert_eq!(shards.lock(home(elsewhere)).len(), 0);
        }
        assert_eq!(shards.lock(home(exhausted)).len(), 1);
    }

    /// The only key that its shard has room for is that of a denied subject.
    #[test]
    fn a_key_in_shadow_without_room_fails_alone_and_makes_room() {
        let shards = Shards::new(1);
        let policy = PolicyId::new("api");
        let check = |key: u64, is_shadow: bool| Check {
            is_shadow,
            ..Check::of(&policy, key, &Limit::gcra(1, MINUTE), Action::acquire(1))
        };
        let home = |key: u64| Shards::home(shards.fingerprint(&check(key, false)));
        let ask = |checks: &[Check<'_>]| {
            let decisions = Together::lock(&shards, checks, NOW).ask().unwrap();
            let outcomes = decisions.iter().map(Decision::outcome);
            outcomes.collect::<Vec<_>>()
        };
        let full = Outcome::FailedOpen(StoreErrorKind::Full);
        let exhausted = 0;
        let crowded_out = (1..).find(|&key| home(key) == home(exhausted)).unwrap();
        let mut elsewhere = (1..).filter(|&key| home(key) != home(exhausted));
        let other = elsewhere.next().unwrap();
        let another = elsewhere.find(|&key| home(key) != home(other)).unwrap();
        assert_eq!(ask(&[check(exhausted, false)]), [Outcome::Allowed]);
        let both = [check(crowded_out, true), check(other, false)];
        assert_eq!(ask(&both), [full, Outcome::Allowed]);
        assert_eq!(ask(&both), [Outcome::Allowed, Outcome::Denied]);
        assert_eq!(shards.lock(home(other)).len(), 1, "it was counted");
        let in_shadow = [check(crowded_out, true), check(another, true)];
        assert_eq!(ask(&in_shadow)[0], full);

        let (denied, newcomer) = (another, elsewhere.find(|&key| home(key) == home(another)));
        let newcomer = newcomer.unwrap();
        assert_eq!(ask(&[check(denied, true)]), [Outcome::Denied]);
        assert_eq!(ask(&[check(newcomer, false)]), [Outcome::Allowed]);
    }
}
