//! `States`: the keys of a trip, and for each the states that are asked about.

use smallvec::SmallVec;

use crate::store::Check;
use crate::store::redis::keys::{Prefix, field, fingerprint_of_key};
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::names::Names;
use crate::store::redis::trips::{ByFingerprint, FingerprintMap};

pub(super) struct States {
    names: Names,
    keys: Vec<Key>,
    known: FingerprintMap<u16>,
}

/// Identifies a state in this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StateId {
    key: u128,
    within_key: u128,
}

impl StateId {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self {
            key: fingerprint_of_key(check),
            within_key: check.fingerprint(),
        }
    }
}

/// The states of a key that are asked about, and their fields.
#[derive(Default)]
struct Key(SmallVec<[(u128, String); 1]>);

/// The place of a state: its key, and its index in the key.
#[derive(Clone, Copy)]
pub(super) struct Place {
    key: u16,
    state: u16,
}

impl States {
    /// With capacity for this many.
    pub(super) fn with_capacity(states: usize) -> Self {
        Self {
            names: Names::with_capacity(states),
            keys: Vec::with_capacity(states),
            known: FingerprintMap::with_capacity_and_hasher(states, ByFingerprint),
        }
    }

    /// The names of the keys.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// The place of a check's state.
    pub(super) fn place(&mut self, id: StateId, check: &Check<'_>, prefix: &Prefix) -> Place {
        let key = *self.known.entry(id.key).or_insert_with(|| {
            self.names.push(check, prefix);
            self.keys.push(Key::default());
            (self.keys.len() - 1) as u16
        });
        let states = &mut self.keys[usize::from(key)].0;
        let known = states.iter().position(|(state, _)| *state == id.within_key);
        let state = known.unwrap_or_else(|| {
            states.push((id.within_key, field(check)));
            states.len() - 1
        });
        Place {
            key,
            state: state as u16,
        }
    }

    /// The numbers by which the script knows these states, two bytes each. A state that is the
    /// whole value of its key has the key's number, from 1 on; states in packs follow. Empty if
    /// each state has the next key's number.
    pub(super) fn numbers(&self, places: &[Place]) -> Vec<u8> {
        let mut behind = self.keys.len() as u16;
        let firsts = self.keys.iter().zip(1..).map(|(key, number)| {
            if !key.is_pack() {
                return number;
            }
            let first = behind + 1;
            behind += key.0.len() as u16;
            first
        });
        let firsts: Vec<u16> = firsts.collect();
        let number = |place: &Place| firsts[usize::from(place.key)] + place.state;
        if places.iter().map(number).eq(1..=self.keys.len() as u16) {
            return Vec::new();
        }
        places
            .iter()
            .map(number)
            .flat_map(u16::to_be_bytes)
            .collect()
    }

    /// The key's number and the field of each state in a pack, as msgpack; empty if there are none.
    pub(super) fn packs(&self) -> Vec<u8> {
        let packs = || {
            self.keys
                .iter()
                .zip(1_u64..)
                .filter(|(key, _)| key.is_pack())
        };
        let states: usize = packs().map(|(key, _)| key.0.len()).sum();
        if states == 0 {
            return Vec::new();
        }
        let mut told = Vec::with_capacity(states * 40);
        msgpack::array_of(&mut told, states * 2);
        for (key, number) in packs() {
            for (_, field) in &key.0 {
                msgpack::number(&mut told, number);
                msgpack::text(&mut told, field);
            }
        }
        told
    }
}

impl Key {
    /// Whether its states have fields. A state that is the whole value has an empty field.
    fn is_pack(&self) -> bool {
        self.0.iter().any(|(_, field)| !field.is_empty())
    }
}
