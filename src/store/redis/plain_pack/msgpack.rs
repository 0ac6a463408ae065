//! As much of the format as takes need: <https://github.com/msgpack/msgpack/blob/master/spec.md>.

pub(super) fn array_of(to: &mut Vec<u8>, entries: usize) {
    to.push(0xdd);
    to.extend(u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
}

pub(super) fn text(to: &mut Vec<u8>, text: &str) {
    to.push(0xdb);
    to.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(text.as_bytes());
}

pub(super) fn number(to: &mut Vec<u8>, number: u64) {
    to.push(0xcf);
    to.extend(number.to_be_bytes());
}
