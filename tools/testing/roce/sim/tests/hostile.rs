// SPDX-License-Identifier: GPL-2.0

//! Hostile peers and consumers.

use proptest::{
    collection::vec,
    prelude::*, //
};
use roce::opcode::Transport;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn rc_survives(data in vec(any::<u8>(), 0..2_000)) {
        sim::hostile::drive(Transport::Rc, &data);
    }

    #[test]
    fn uc_survives(data in vec(any::<u8>(), 0..1_000)) {
        sim::hostile::drive(Transport::Uc, &data);
    }

    #[test]
    fn ud_survives(data in vec(any::<u8>(), 0..1_000)) {
        sim::hostile::drive(Transport::Ud, &data);
    }
}
