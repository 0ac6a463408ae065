//! The hash slots of a cluster, and their nodes.

use std::collections::HashSet;
use std::iter::once;
use std::sync::Arc;
use std::{fmt, ops};

use redis::Value;

use crate::error::StoreError;

/// The number of slots.
const SLOTS: u16 = 16_384;

/// A part of all keys, on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u16);

impl Slot {
    /// The slot of all keys with this text between their braces: CRC-16/XMODEM, as Redis has it.
    pub(super) fn of_tag(tag: &[u8]) -> Self {
        Self::of_crc(tag.iter().copied().fold(0, with_byte))
    }

    fn of_crc(crc: u16) -> Self {
        Self(crc % SLOTS)
    }
}

/// The remainder of a text and one more byte.
fn with_byte(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ REMAINDERS[usize::from((crc >> 8) as u8 ^ byte)]
}

/// Short tags, and their slots: every slot is among them. A slot takes some ten thousand of them, so
/// none is formatted before it is wanted.
fn tags() -> impl Iterator<Item = ([u8; 3], Slot)> {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let longer = |crc| {
        LETTERS
            .iter()
            .map(move |byte| (*byte, with_byte(crc, *byte)))
    };
    longer(0).flat_map(move |(a, crc)| {
        longer(crc).flat_map(move |(b, crc)| {
            longer(crc).map(move |(c, crc)| ([a, b, c], Slot::of_crc(crc)))
        })
    })
}

/// The remainder of each byte by the polynomial of CRC-16/XMODEM.
const REMAINDERS: [u16; 256] = {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc = (crc << 1) ^ if carry { 0x1021 } else { 0 };
            bit += 1;
        }
        remainders[byte] = crc;
        byte += 1;
    }
    remainders
};

/// The host of a node without a name, in a cluster that is configured to call its nodes by names.
const NO_NAME: &str = "?";

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Node {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let host = host.into();
        Self { host, port }
    }

    /// Reads the node of a redirection, `host:port`. Without a host, it is that of the node that
    /// redirects. `None` if the node lacks the name by which it should be called.
    pub(super) fn parse(text: &str, redirected_by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        if host == NO_NAME {
            return None;
        }
        let host = if host.is_empty() {
            &redirected_by.host
        } else {
            host
        };
        Some(Self::new(host, port.parse().ok()?))
    }
}

/// The masters of a cluster and their slots, in the slots' order, as a cluster that was extended
/// often has thousands of ranges.
#[derive(Default)]
pub(super) struct SlotMap {
    ranges: Vec<Range>,
    /// The error of CLUSTER SLOTS, if the node counts as having all slots because of it.
    unassigned: Option<StoreError>,
}

struct Range {
    first: u16,
    last: u16,
    master: Node,
}

impl SlotMap {
    /// Reads this node's answer to CLUSTER SLOTS; `None` if it is none.
    pub(super) fn read(answer: &Value, by: &Node) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let ranges = ranges.iter().map(|range| Range::read(range, by));
        let mut ranges = ranges.collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable_by_key(|range| range.first);
        Some(Self {
            ranges,
            unassigned: None,
        })
    }

    /// All slots on one node, which answers or redirects: an endpoint in front of a cluster follows its
    /// rules, but may hide its nodes.
    pub(super) fn unassigned(node: Node, why: StoreError) -> Self {
        let all = Range {
            first: 0,
            last: SLOTS - 1,
            master: node,
        };
        Self {
            ranges: vec![all],
            unassigned: Some(why),
        }
    }

    /// The error of CLUSTER SLOTS; `None` if a node has answered it.
    pub(super) fn why_unassigned(&self) -> Option<&StoreError> {
        self.unassigned.as_ref()
    }

    /// Assigns slots without a node to the nodes that had them before. A node may know that a master
    /// has stepped down before it knows the new node of its slots. The former node answers or
    /// redirects.
    pub(super) fn with_gaps_as_in(mut self, before: &Self) -> Self {
        for gap in self.gaps() {
            self.ranges.extend(before.within(gap));
        }
        self.ranges.sort_unstable_by_key(|range| range.first);
        self
    }

    /// The slots without a node.
    fn gaps(&self) -> Vec<ops::Range<u16>> {
        let begins = self.ranges.iter().map(|range| range.last.saturating_add(1));
        let ends = self.ranges.iter().map(|range| range.first);
        let gaps = once(0).chain(begins).zip(ends.chain(once(SLOTS)));
        let gaps = gaps.map(|(begin, end)| begin..end);
        gaps.filter(|gap| !gap.is_empty()).collect()
    }

    /// The ranges of these slots that have a node.
    fn within(&self, slots: ops::Range<u16>) -> impl Iterator<Item = Range> {
        let from = self
            .ranges
            .partition_point(|range| range.last < slots.start);
        let ranges = self.ranges[from..]
            .iter()
            .take_while(move |range| range.first < slots.end);
        ranges.map(move |range| Range {
            first: range.first.max(slots.start),
            last: range.last.min(slots.end - 1),
            master: range.master.clone(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn master_of(&self, slot: Slot) -> Option<&Node> {
        let behind = self.ranges.partition_point(|range| range.first <= slot.0);
        let range = self.ranges[..behind].last()?;
        (slot.0 <= range.last).then_some(&range.master)
    }

    /// For each master a tag whose slot it has.
    pub(super) fn tags(&self) -> Vec<(&Node, String)> {
        let mut without: HashSet<_> = self.masters().into_iter().collect();
        let mut found = Vec::with_capacity(without.len());
        for (tag, slot) in tags() {
            if without.is_empty() {
                break;
            }
            if let Some(master) = self.master_of(slot)
                && without.remove(master)
            {
                found.push((master, tag.map(char::from).iter().collect()));
            }
        }
        found
    }

    /// Every master, once.
    pub(super) fn masters(&self) -> Vec<&Node> {
        let mut masters: Vec<&Node> = Vec::new();
        for Range { master, .. } in &self.ranges {
            if !masters.contains(&master) {
                masters.push(master);
            }
        }
        masters
    }
}

impl Range {
    /// Reads the first slot, the last slot, the master and the replicas; a node begins with its
    /// host and its port.
    fn read(range: &Value, by: &Node) -> Option<Self> {
        let Value::Array(parts) = range else {
            return None;
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = &parts[..]
        else {
            return None;
        };
        let [host, Value::Int(port), others @ ..] = &master[..] else {
            return None;
        };
        let host = match text_of(host)? {
            NO_NAME => address_in(others).unwrap_or(NO_NAME),
            host => host,
        };
        let host = match host {
            // The host of the node that was asked.
            "" => &by.host,
            host => host,
        };
        Some(Self {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            master: Node::new(host, u16::try_from(*port).ok()?),
        })
    }
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Nil => Some(""),
        _ => None,
    }
}

/// The address of a node that is called by something else. The host and the port are followed by
/// its id and a list of its other names.
fn address_in(others: &[Value]) -> Option<&str> {
    let [_, Value::Array(places), ..] = others else {
        return None;
    };
    let mut places = places.chunks_exact(2);
    let address = places.find(|place| text_of(&place[0]) == Some("ip"))?;
    text_of(&address[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As CLUSTER KEYSLOT says.
    #[test]
    fn slots_are_those_of_redis() {
        for (tag, slot) in [("a", 15_495), ("b", 3_300), ("123456789", 12_739), ("", 0)] {
            assert_eq!(Slot::of_tag(tag.as_bytes()), Slot(slot), "{tag}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        let mut slots = HashSet::new();
        for (tag, slot) in tags() {
            assert_eq!(Slot::of_tag(&tag), slot, "{tag:?}");
            slots.insert(slot.0);
        }
        assert_eq!(slots.len(), usize::from(SLOTS));
    }

    #[test]
    fn every_master_has_a_tag_however_few_slots_it_has() {
        let asked = Node::new("seed", 1);
        let answer = Value::Array(vec![
            range(0, 8_000, bulk("many"), 7),
            range(8_001, 8_001, bulk("one"), 7),
            range(8_003, 16_382, bulk("many"), 7),
            range(16_383, 16_383, bulk("last"), 7),
        ]);
        let map = SlotMap::read(&answer, &asked).unwrap();
        let tags = map.tags();
        assert_eq!(tags.len(), 3);
        for (master, tag) in tags {
            assert_eq!(map.master_of(Slot::of_tag(tag.as_bytes())), Some(master));
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port), bulk("its id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    #[test]
    fn a_node_without_a_host_has_the_host_of_the_node_asked() {
        let asked = Node::new("seed", 1);
        // In whatever order.
        let answer = Value::Array(vec![
            range(8_001, 16_000, Value::Nil, 8),
            range(1, 8_000, bulk("one"), 7),
        ]);
        let map = SlotMap::read(&answer, &asked).unwrap();
        let [one, seed] = [Node::new("one", 7), Node::new("seed", 8)];
        assert_eq!(map.master_of(Slot(0)), None);
        assert_eq!(map.master_of(Slot(1)), Some(&one));
        assert_eq!(map.master_of(Slot(8_000)), Some(&one));
        assert_eq!(map.master_of(Slot(8_001)), Some(&seed));
        assert_eq!(map.master_of(Slot(16_000)), Some(&seed));
        assert_eq!(map.master_of(Slot(16_001)), None);
        assert_eq!(Node::parse(":9", &asked), Some(Node::new("seed", 9)));
        assert_eq!(Node::parse("::1:9", &asked), Some(Node::new("::1", 9)));
        assert_eq!(Node::parse("nothing", &asked), None);
    }

    #[test]
    fn a_node_without_a_host_name_is_reached_by_its_address() {
        let asked = Node::new("seed", 1);
        let with = |places: &[&str]| {
            let places = places.iter().map(|place| bulk(place)).collect();
            let master = [
                bulk("?"),
                Value::Int(7),
                bulk("its id"),
                Value::Array(places),
            ];
            let range = [Value::Int(0), Value::Int(1), Value::Array(master.into())];
            let answer = Value::Array(vec![Value::Array(range.into())]);
            let map = SlotMap::read(&answer, &asked).unwrap();
            map.master_of(Slot(0)).unwrap().host.to_string()
        };
        assert_eq!(with(&["ip", "10.0.0.7"]), "10.0.0.7");
        assert_eq!(with(&["other", "ip", "ip", "10.0.0.7"]), "10.0.0.7");
        // A single node does not know its own address.
        assert_eq!(with(&["ip", ""]), "seed");
        // The slots of all others are known nevertheless.
        assert_eq!(with(&[]), "?");
        assert_eq!(Node::parse("?:9", &asked), None);
    }

    /// Of these slots each.
    fn map(ranges: &[(i64, i64, &str)]) -> SlotMap {
        let ranges = ranges
            .iter()
            .map(|(first, last, host)| range(*first, *last, bulk(host), 7));
        let answer = Value::Array(ranges.collect());
        SlotMap::read(&answer, &Node::new("seed", 1)).unwrap()
    }

    #[test]
    fn slots_that_nobody_has_are_where_they_were() {
        let before = map(&[
            (0, 9, "a"),
            (10, 19, "b"),
            (20, 29, "c"),
            (16_383, 16_383, "d"),
        ]);
        let told = map(&[(2, 3, "e"), (8, 12, "f"), (18, 18, "g"), (20, 20, "h")]);
        let known = told.with_gaps_as_in(&before);
        for (first, last, host) in [
            (0, 1, Some("a")),
            (2, 3, Some("e")),
            (4, 7, Some("a")),
            (8, 12, Some("f")),
            (13, 17, Some("b")),
            (18, 18, Some("g")),
            (19, 19, Some("b")),
            (20, 20, Some("h")),
            (21, 29, Some("c")),
            (30, 16_382, None),
            (16_383, 16_383, Some("d")),
        ] {
            let master = host.map(|host| Node::new(host, 7));
            for slot in first..=last {
                assert_eq!(known.master_of(Slot(slot)), master.as_ref(), "{slot}");
            }
        }
        let masters = ["a", "e", "f", "b", "g", "h", "c", "d"].map(|host| Node::new(host, 7));
        assert!(
            known.masters().into_iter().eq(&masters),
            "each of them once"
        );
    }

    #[test]
    fn an_answer_of_another_shape_is_no_map() {
        let node = Node::new("seed", 1);
        for answer in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(-1, 2, bulk("one"), 7)]),
            Value::Array(vec![range(0, 2, bulk("one"), 70_000)]),
        ] {
            assert!(SlotMap::read(&answer, &node).is_none(), "{answer:?}");
        }
    }
}
