//! Base64 as gRPC uses it in binary headers: RFC 4648, section 4, without padding.
//!
//! Written out, since no other dependency of this crate brings a crate for it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn unpadded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        // One, two or three bytes become two, three or four characters.
        for character in 0..=group.len() {
            let index = (bits >> (18 - 6 * character)) & 0b11_1111;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_come_out_without_their_padding() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(unpadded(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(unpadded(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
