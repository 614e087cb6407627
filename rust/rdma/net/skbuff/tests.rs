// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the bounds of a packet.

use super::{
    list,
    PacketPools,
    SkBuff,
    SkBuffList,
    SkBuffQueue,
    Train, //
};
use kernel::prelude::*;

#[kernel::macros::kunit_tests(rdma_skbuff_queue)]
mod queue {
    use super::*;

    fn packet(byte: u8) -> Result<SkBuff> {
        let mut skb = SkBuff::alloc(0, 64).ok_or(ENOMEM)?;
        skb.append(&[byte])?;
        Ok(skb)
    }

    #[test]
    fn packets_and_values_come_out_in_order() -> Result {
        let mut queue = SkBuffQueue::<(u64, Option<u16>)>::new();

        assert!(queue.is_empty() && queue.pop().is_none());
        for round in 0..2 {
            for byte in 0..3u8 {
                queue.push(packet(byte)?, (u64::from(byte) << 40, Some(round)));
                assert_eq!(queue.len(), usize::from(byte) + 1);
            }
            for byte in 0..3u8 {
                let (skb, value) = queue.pop().ok_or(EINVAL)?;
                assert_eq!(skb.data(), [byte]);
                assert_eq!(value, (u64::from(byte) << 40, Some(round)));
            }
            assert!(queue.is_empty() && queue.len() == 0 && queue.pop().is_none());
        }
        Ok(())
    }

    #[test]
    fn dropped_queue_frees_packets() -> Result {
        let mut queue = SkBuffQueue::<()>::new();

        for byte in 0..3 {
            queue.push(packet(byte)?, ());
        }
        drop(queue.pop());
        drop(queue);
        Ok(())
    }
}

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
        assert!(skb.headroom() >= 16);
        assert_eq!(skb.data(), b"");
        assert!(skb.received_headers().is_none());
    }

    #[test]
    fn append_extends_data() -> Result {
        let mut skb = packet();

        *skb.append_array()? = *b"header ";
        skb.append(b"payload")?;
        skb.append_zeros(2)?;
        assert_eq!(skb.append_array::<2>()?, &[0; 2]);
        assert_eq!(skb.data(), b"header payload\0\0\0\0");
        assert_eq!(skb.len(), 18);
        Ok(())
    }

    #[test]
    fn truncate_removes_bytes_at_end() -> Result {
        let mut skb = packet();

        skb.append(b"abcdef")?;
        skb.truncate(7)?;
        assert_eq!(skb.data(), b"abcdef");
        skb.truncate(2)?;
        skb.append(b"xy")?;
        assert_eq!(skb.data(), b"abxy");
        skb.truncate(0)?;
        assert!(skb.is_empty());
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
        assert_eq!(skb.append_array::<1>().err(), Some(ENOSPC));
        assert_eq!(skb.append(b""), Ok(()));
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
    fn alloc_fails_for_impossible_sizes() {
        assert!(SkBuff::alloc(usize::MAX, 1).is_none());
        assert!(SkBuff::alloc(0, usize::MAX).is_none());
        assert!(SkBuff::alloc(1 << 31, 0).is_none());
        // The offsets of the headers have 16 bits.
        assert!(SkBuff::alloc(1 << 16, 64).is_none());
    }

    #[test]
    fn pool_packet_has_requested_room() -> Result {
        let pools = PacketPools::new()?;

        for size in [100, 1500, 4200, 7000, 9000, 70_000] {
            let mut skb = pools.alloc(16, size).ok_or(ENOMEM)?;
            assert!(skb.is_empty() && skb.is_linear());
            assert!(skb.headroom() >= 16);
            skb.append_zeros(size)?;
            assert_eq!(skb.len(), size);
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

#[kernel::macros::kunit_tests(rdma_train)]
mod trains {
    use super::*;

    const IPV4_LEN: usize = 20;
    const UDP_LEN: usize = 8;
    const HEADERS: usize = IPV4_LEN + UDP_LEN;

    /// Makes an IPv4 packet with `len` bytes of `fill` as its UDP payload.
    fn packet(len: usize, fill: u8) -> Result<SkBuff> {
        packet_behind(Train::HEADROOM, len, fill)
    }

    /// Makes such a packet with some room in front.
    fn packet_behind(headroom: usize, len: usize, fill: u8) -> Result<SkBuff> {
        let mut skb = SkBuff::alloc(headroom, HEADERS + len).ok_or(ENOMEM)?;
        let total = u16::try_from(HEADERS + len)?.to_be_bytes();
        let udp_len = u16::try_from(UDP_LEN + len)?.to_be_bytes();

        skb.append(&[0x45, 0, total[0], total[1]])?;
        skb.append_zeros(IPV4_LEN - 4)?;
        skb.append(&[0, 1, 0, 2, udp_len[0], udp_len[1], 0, 0])?;
        for _ in 0..len {
            skb.append(&[fill])?;
        }
        Ok(skb)
    }

    /// Makes a train of packets of these lengths.
    fn train_of(lens: &[usize]) -> Result<Train> {
        let mut fill = 0;
        let mut train: Option<Train> = None;

        for &len in lens {
            let skb = packet(len, fill)?;
            fill += 1;
            match &mut train {
                None => train = Some(Train::new(skb)),
                Some(train) => train.push(skb).map_err(|_| ENOSPC)?,
            }
        }
        train.ok_or(EINVAL)
    }

    /// Passes a train on as UDP does.
    fn receive(train: Train) -> Result<SkBuffList> {
        // SAFETY: The packet begins with both headers, and is a whole train.
        unsafe { list::tests::deliver(train.assemble()?) }
    }

    #[test]
    fn train_arrives_as_it_was_sent() -> Result {
        let lens = [101, 100, 37, 0, 101];
        let train = train_of(&lens)?;
        assert_eq!(usize::from(train.packets()), lens.len());
        assert_eq!(
            train.bytes(),
            lens.iter().sum::<usize>() + lens.len() * HEADERS
        );
        let mut list = receive(train)?;
        assert!(list.is_whole());
        let mut fill = 0;
        for len in lens {
            let skb = list.pop().ok_or(EINVAL)?;
            assert!(skb.is_linear());
            assert_eq!(skb.len(), len);
            assert!(skb.data().iter().all(|&byte| byte == fill));
            let (ip, udp) = skb.received_headers().ok_or(EINVAL)?;
            let crate::net::IpHeader::V4(ip) = ip else {
                return Err(EINVAL);
            };
            assert_eq!(
                usize::from(u16::from_be_bytes([ip[2], ip[3]])),
                HEADERS + len
            );
            assert_eq!(
                usize::from(u16::from_be_bytes([udp[4], udp[5]])),
                UDP_LEN + len
            );
            fill += 1;
        }
        assert!(list.pop().is_none() && list.is_empty());
        Ok(())
    }

    #[test]
    fn train_is_limited_by_ip_length_and_packet_count() -> Result {
        let mut train = train_of(&[8000])?;
        while train.push(packet(8000, 0)?).is_ok() {}
        assert_eq!(train.packets(), 8);
        let mut train = train_of(&[1])?;
        while train.push(packet(1, 0)?).is_ok() {}
        assert_eq!(train.packets(), Train::MOST);
        Ok(())
    }

    #[test]
    fn packet_longer_than_first_does_not_join() -> Result {
        let mut train = train_of(&[100, 10])?;

        assert!(train.push(packet(101, 0)?).is_err());
        assert!(train.push(packet(100, 0)?).is_ok());
        assert_eq!(train.packets(), 3);
        Ok(())
    }

    #[test]
    fn packet_without_headers_or_with_clone_does_not_join() -> Result {
        let mut train = train_of(&[100])?;
        let mut other = SkBuff::alloc(0, 64).ok_or(ENOMEM)?;
        other.append(&[0x45; HEADERS - 1])?;
        assert!(train.push(other).is_err());
        let other = packet_behind(Train::HEADROOM - 1, 10, 0)?;
        assert!(train.push(other).is_err());
        let cloned = packet(10, 0)?;
        let clone = cloned.try_clone().ok_or(ENOMEM)?;
        assert!(train.push(cloned).is_err());
        drop(clone);
        assert_eq!(train.packets(), 1);
        Ok(())
    }

    #[test]
    fn dropped_train_and_list_free_all_packets() -> Result {
        drop(train_of(&[10, 10, 10])?);
        let mut list = receive(train_of(&[10, 10, 10])?)?;
        drop(list.pop());
        drop(list);
        Ok(())
    }
}
