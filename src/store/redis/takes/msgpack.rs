//! The part of the format that takes need:
//! <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use smallvec::SmallVec;

pub(super) fn array_of(to: &mut Vec<u8>, entries: usize) {
    to.push(0xdd);
    to.extend(u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
}

pub(super) fn text(to: &mut Vec<u8>, text: &str) {
    to.push(0xdb);
    to.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(text.as_bytes());
}

/// Writes the head of a map as the server does: the shortest.
pub(super) fn map_of(to: &mut Vec<u8>, entries: usize) {
    match u16::try_from(entries) {
        Ok(few @ 0..16) => to.push(0x80 | few as u8),
        Ok(entries) => {
            to.push(0xde);
            to.extend(entries.to_be_bytes());
        }
        Err(_more) => {
            to.push(0xdf);
            to.extend(u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

/// Like [`text`], with the shortest head.
pub(super) fn short_text(to: &mut Vec<u8>, short: &str) {
    match short.len() {
        0..32 => to.push(0xa0 | short.len() as u8),
        32..256 => to.extend([0xd9, short.len() as u8]),
        256..0x1_0000 => {
            to.push(0xda);
            to.extend((short.len() as u16).to_be_bytes());
        }
        _ => return text(to, short),
    }
    to.extend(short.as_bytes());
}

pub(super) fn number(to: &mut Vec<u8>, number: u64) {
    to.push(0xcf);
    to.extend(number.to_be_bytes());
}

/// The numbers of a map with this many entries under texts, in order; `None` for any other form.
pub(super) fn numbers_of(map: &[u8], entries: usize) -> Option<SmallVec<[u64; 8]>> {
    let (count, mut left) = match map {
        [head @ 0x80..=0x8f, left @ ..] => (usize::from(head & 0x0f), left),
        [0xde, high, low, left @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), left),
        _ => return None,
    };
    if count != entries {
        return None;
    }
    let numbers = (0..entries).map(|_| {
        let (number, behind) = number_under_text(left)?;
        left = behind;
        Some(number)
    });
    let numbers = numbers.collect::<Option<_>>()?;
    left.is_empty().then_some(numbers)
}

/// The number of an entry, and the rest after it.
fn number_under_text(entry: &[u8]) -> Option<(u64, &[u8])> {
    let (length, text) = match entry {
        [head @ 0xa0..=0xbf, text @ ..] => (usize::from(head & 0x1f), text),
        [0xd9, length, text @ ..] => (usize::from(*length), text),
        [0xda, high, low, text @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), text),
        _ => return None,
    };
    let (_, value) = text.split_at_checked(length)?;
    let (number, behind) = value.strip_prefix(&[0xcf])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of these entries, with the given head of each text.
    fn map(head: &[u8], entries: &[(&[u8], usize, u64)]) -> Vec<u8> {
        let mut map = head.to_vec();
        for (head, length, value) in entries {
            map.extend(*head);
            map.extend(vec![b'a'; *length]);
            number(&mut map, *value);
        }
        map
    }

    #[test]
    fn numbers_are_read_under_texts_of_any_length() {
        let entries = [
            (&[0xa0][..], 0, 0),
            (&[0xbf], 31, 7),
            (&[0xd9, 200], 200, u64::MAX),
            (&[0xda, 1, 44], 300, 1 << 53),
        ];
        let expected = [0, 7, u64::MAX, 1 << 53];
        for head in [&[0x84][..], &[0xde, 0, 4]] {
            let read = numbers_of(&map(head, &entries), 4);
            assert_eq!(read.as_deref(), Some(&expected[..]));
        }
    }

    #[test]
    fn msgpack_with_short_heads_is_read() {
        for entries in [1, 15, 16, 300] {
            let mut map = Vec::new();
            map_of(&mut map, entries);
            for value in 0..entries as u64 {
                short_text(&mut map, &"a".repeat(value as usize));
                number(&mut map, value);
            }
            let read = numbers_of(&map, entries);
            assert!(read.is_some_and(|read| read.into_iter().eq(0..entries as u64)));
        }
    }

    #[test]
    fn a_map_of_any_other_form_is_none() {
        let whole = map(&[0x82], &[(&[0xa1], 1, 5), (&[0xa1], 1, 6)]);
        assert!(numbers_of(&whole, 2).is_some());
        for entries in [0, 1, 3] {
            assert_eq!(numbers_of(&whole, entries), None);
        }
        for length in 0..whole.len() {
            assert_eq!(numbers_of(&whole[..length], 2), None, "{length}");
        }
        assert_eq!(numbers_of(&[&whole[..], &[0]].concat(), 2), None);
        for (position, byte) in [(0, 0x92), (1, 0xc0), (3, 0xce), (1, 0xbf)] {
            let mut other = whole.clone();
            other[position] = byte;
            assert_eq!(numbers_of(&other, 2), None, "{position}");
        }
    }
}
