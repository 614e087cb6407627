// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the bounds of a packet.

use super::{
    PacketPools,
    SkBuff, //
};
use kernel::prelude::*;

#[kernel::macros::kunit_tests(rdma_skbuff)]
mod skbuff {
    use super::*;

    fn packet() -> SkBuff {
        SkBuff::alloc(16, 64).unwrap()
    }

    #[test]
    fn new_packet_is_empty_without_headers() {
        let skb = packet();

        assert!(skb.is_empty() && skb.is_linear());
        assert_eq!(skb.data(), b"");
        assert!(skb.network_header().is_none() && skb.received_headers().is_none());
    }

    #[test]
    fn append_and_prepend_extend_data() -> Result {
        let mut skb = packet();

        skb.append(b"payload")?;
        skb.append_zeros(2)?;
        skb.prepend(b"header ")?;
        assert_eq!(skb.data(), b"header payload\0\0");
        assert_eq!(skb.len(), 16);
        Ok(())
    }

    #[test]
    fn append_is_limited_by_tailroom() -> Result {
        let mut skb = packet();

        // The allocator may have rounded the size up.
        while skb.append(b"x").is_ok() {}
        let len = skb.len();
        assert!(len >= 64);
        assert_eq!(skb.append(b"x"), Err(ENOSPC));
        assert_eq!(skb.append_zeros(1), Err(ENOSPC));
        assert_eq!(skb.append_zeros(usize::MAX), Err(ENOSPC));
        assert_eq!(skb.append(b""), Ok(()));
        assert_eq!(skb.len(), len);
        Ok(())
    }

    #[test]
    fn prepend_is_limited_by_headroom() -> Result {
        let mut skb = packet();

        while skb.prepend(b"x").is_ok() {}
        let len = skb.len();
        assert!(len >= 16);
        assert_eq!(skb.prepend(b"xy"), Err(ENOSPC));
        assert_eq!(skb.prepend(b""), Ok(()));
        assert_eq!(skb.len(), len);
        Ok(())
    }

    #[test]
    fn failed_append_with_adds_nothing() -> Result {
        let mut skb = packet();

        skb.append(b"ab")?;
        // SAFETY: The closure fails, and writes within the room.
        let ret = unsafe {
            skb.append_with(4, |room| {
                room.write(b'x');
                Err(EFAULT)
            })
        };
        assert_eq!(ret, Err(EFAULT));
        assert_eq!(skb.data(), b"ab");
        Ok(())
    }

    #[test]
    fn pull_is_limited_by_length() -> Result {
        let mut skb = packet();

        skb.append(b"abcdef")?;
        assert_eq!(skb.pull(7), Err(EINVAL));
        assert_eq!(skb.pull(usize::MAX), Err(EINVAL));
        skb.pull(2)?;
        assert_eq!(skb.data(), b"cdef");
        skb.pull(4)?;
        assert!(skb.is_empty());
        assert_eq!(skb.pull(1), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn alloc_fails_for_impossible_sizes() {
        assert!(SkBuff::alloc(usize::MAX, 1).is_none());
        assert!(SkBuff::alloc(0, usize::MAX).is_none());
        assert!(SkBuff::alloc(1 << 31, 0).is_none());
    }

    #[test]
    fn pool_packet_has_requested_room() -> Result {
        let pools = PacketPools::new()?;

        for size in [100, 1500, 4200, 7000, 9000, 70_000] {
            let mut skb = pools.alloc(16, size).ok_or(ENOMEM)?;
            assert!(skb.is_empty() && skb.is_linear());
            skb.prepend(b"sixteen bytes ..")?;
            skb.append_zeros(size)?;
            assert_eq!(skb.len(), 16 + size);
        }
        Ok(())
    }

    #[test]
    fn packets_outlive_pool() -> Result {
        let pools = PacketPools::new()?;
        let mut before = pools.alloc(16, 4096).ok_or(ENOMEM)?;

        pools.shut_down();
        before.append_zeros(4096)?;
        assert!(pools.alloc(16, 4096).is_some());
        drop(pools);
        assert_eq!(before.len(), 4096);
        Ok(())
    }
}
