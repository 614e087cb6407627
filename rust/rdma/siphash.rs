// SPDX-License-Identifier: GPL-2.0

//! Keyed hashes, for tables whose keys an attacker may choose.
//!
//! C header: [`include/linux/siphash.h`](srctree/include/linux/siphash.h)

use crate::{
    bindings,
    random, //
};

/// A secret key of SipHash-2-4. Values with the same hash cannot be found without the key.
pub(crate) struct HashKey(bindings::siphash_key_t);

impl HashKey {
    /// Makes a random key. Callable in any context.
    pub(crate) fn random() -> Self {
        Self::from_words([random::word(), random::word()])
    }

    const fn from_words(key: [u64; 2]) -> Self {
        Self(bindings::siphash_key_t { key })
    }

    /// Returns the bucket of three words, 0 if there are no buckets. Callable in any context.
    #[inline]
    pub(crate) fn bucket(&self, [a, b, c]: [u64; 3], buckets: usize) -> usize {
        // SAFETY: The key is valid for read.
        let hash = unsafe { bindings::siphash_3u64(a, b, c, &self.0) };
        // CAST: Both have 64 bits at most, and the result is less than `buckets`.
        hash.checked_rem(buckets as u64).unwrap_or(0) as usize
    }
}

/// Returns the two words of a GID or an IPv6 address, to be hashed.
///
/// # Examples
///
/// ```
/// use rdma::siphash;
///
/// /// Returns the words of an address of a net device.
/// fn words_of(ifindex: u32, gid: [u8; 16]) -> [u64; 3] {
///     let [low, high] = siphash::words(gid);
///     [ifindex.into(), low, high]
/// }
/// ```
#[inline]
pub fn words(gid: [u8; 16]) -> [u64; 2] {
    let gid = u128::from_ne_bytes(gid);
    // CAST: All bits of it, in two halves.
    [gid as u64, (gid >> 64) as u64]
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_siphash)]
mod tests {
    use super::*;
    use kernel::prelude::*;

    const KEYS: [[u64; 2]; 3] = [
        [0, 0],
        [1, 2],
        [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
    ];

    /// The number of addresses per pattern.
    const MANY: u32 = 2048;

    /// Returns the largest number of addresses of a pattern that share a bucket.
    fn longest_chain(
        key: &HashKey,
        buckets: usize,
        pattern: impl Fn(u32) -> [u8; 16],
    ) -> Result<u32> {
        let mut chains = KVec::from_elem(0u32, buckets, GFP_KERNEL)?;

        for i in 0..MANY {
            let [low, high] = words(pattern(i));
            let chain = chains.get_mut(key.bucket([1, low, high], buckets));
            *chain.ok_or(EINVAL)? += 1;
        }
        Ok(chains.iter().copied().max().unwrap_or(0))
    }

    /// Checks the bucket counts of all tables that are keyed by address. The bounds leave a margin:
    /// the probability that any of 1024 random chains exceeds them is less than one in a million.
    fn check(pattern: impl Fn(u32) -> [u8; 16] + Copy) -> Result {
        for (buckets, most) in [(256, 32), (1024, 20)] {
            for key in KEYS {
                let longest = longest_chain(&HashKey::from_words(key), buckets, pattern)?;
                assert!(longest <= most);
            }
        }
        Ok(())
    }

    #[test]
    fn every_address_byte_is_hashed() -> Result {
        for shift in (0..=112).step_by(8) {
            check(|i| (0xff02u128 << 112 ^ u128::from(i) << shift).to_be_bytes())?;
        }
        Ok(())
    }

    #[test]
    fn namespace_is_hashed() -> Result {
        let [low, high] = words([0xff; 16]);

        for key in KEYS {
            let key = HashKey::from_words(key);
            let same = (0..1024u64)
                .filter(|net| key.bucket([*net, low, high], 1024) == 0)
                .count();
            assert!(same <= 16);
        }
        Ok(())
    }
}
