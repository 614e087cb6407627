// SPDX-License-Identifier: GPL-2.0

//! Payload that is different for each message, and the checksum that replaces the ICRC.

/// Fills `buf` with the bytes of message `id` from `offset` on.
pub fn fill(id: u64, offset: usize, buf: &mut [u8]) {
    let mut position = offset;
    let mut rest = buf;
    while !rest.is_empty() {
        let word = word(id, position / 8).to_le_bytes();
        let from = position % 8;
        let len = (8 - from).min(rest.len());
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(&word[from..from + len]);
        position += len;
        rest = tail;
    }
}

/// Returns message `id` of `len` bytes.
pub fn message(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(id, 0, &mut bytes);
    bytes
}

/// Returns a checksum that detects every change of one word.
pub fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    ((hash >> 32) as u32).to_le_bytes()
}

fn word(id: u64, index: usize) -> u64 {
    mix(id.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ index as u64)
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_message() {
        let whole = message(7, 100);
        let mut pieces = vec![0; 100];
        fill(7, 0, &mut pieces[..13]);
        fill(7, 13, &mut pieces[13..]);
        assert_eq!(whole, pieces);
        assert_ne!(whole, message(8, 100));
    }

    #[test]
    fn checksum_detects_every_bit_flip() {
        let mut bytes = message(1, 61);
        let sum = checksum(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), sum);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
