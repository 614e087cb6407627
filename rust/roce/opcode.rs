// SPDX-License-Identifier: GPL-2.0

//! The operations that a packet can carry: one table.

mod headers;

use headers::Headers;

/// A transport service type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection: in order, exactly once.
    Rc,
    /// Unreliable connection: whole messages only, which the network may lose, duplicate or
    /// reorder.
    Uc,
    /// Unreliable datagram: one packet per message, any peer. The GSI queue pair is one of these.
    Ud,
}

/// The operation of a packet, whatever its position in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Carries payload into a posted receive buffer.
    Send,
    /// Carries payload to an address of the receiver.
    Write,
    /// Requests memory of the receiver.
    ReadRequest,
    /// Changes a word of the receiver atomically, and requests its original value.
    Atomic,
    /// Stores a word at the receiver in one step.
    AtomicWrite,
    /// Requests a response once earlier writes are globally visible, or persistent.
    Flush,
    /// Carries the requested memory.
    ReadResponse,
    /// Acknowledges requests, or refuses one.
    Acknowledge,
    /// Carries the original value of an atomic operation.
    AtomicAck,
    /// Notifies of congestion (CNP).
    Cnp,
    /// No operation: an RC opcode that is reserved or not supported. It is treated as a request.
    Invalid,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last packet.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// Returns the position of packet `index` in a message of `count` packets.
    #[inline]
    pub const fn of(index: u32, count: u32) -> Position {
        match (index, index.saturating_add(1) >= count) {
            (0, true) => Position::Only,
            (0, false) => Position::First,
            (_, true) => Position::Last,
            (_, false) => Position::Middle,
        }
    }
}

/// The properties of an opcode.
#[derive(Clone, Copy)]
struct Info {
    transport: Transport,
    operation: Operation,
    position: Position,
    headers: Headers,
    /// Bytes of the BTH and all of `headers`.
    header_len: u8,
}

macro_rules! opcodes {
    (
        $($raw:literal $name:ident $transport:ident $operation:ident $position:ident
          $headers:ident;)*
    ) => {
        /// The opcode of a packet that this driver supports.
        ///
        /// All other RC opcodes are one variant, so that the responder can refuse them with a NAK.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $(
                #[doc = concat!(
                    stringify!($transport), ", ", stringify!($operation), ", ",
                    stringify!($position), "; headers: ", stringify!($headers), "."
                )]
                $name = $raw,
            )*
        }

        impl Opcode {
            /// Every known opcode, in ascending order.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// Finds the opcode with a number.
            const fn find(raw: u8) -> Option<Opcode> {
                match raw {
                    $($raw => Some(Opcode::$name),)*
                    // The top three bits are the service type, zero for RC.
                    ..0x20 => Some(Opcode::RcInvalid),
                    _ => None,
                }
            }

            /// Returns the properties of the opcode.
            const fn describe(self) -> Info {
                match self {
                    $(Opcode::$name => Info {
                        transport: Transport::$transport,
                        operation: Operation::$operation,
                        position: Position::$position,
                        headers: Headers::$headers,
                        header_len: const { Headers::$headers.len() },
                    },)*
                }
            }
        }
    };
}

opcodes! {
    0x00 RcSendFirst          Rc Send         First  NONE;
    0x01 RcSendMiddle         Rc Send         Middle NONE;
    0x02 RcSendLast           Rc Send         Last   NONE;
    0x03 RcSendLastImm        Rc Send         Last   IMMDT;
    0x04 RcSendOnly           Rc Send         Only   NONE;
    0x05 RcSendOnlyImm        Rc Send         Only   IMMDT;
    0x06 RcWriteFirst         Rc Write        First  RETH;
    0x07 RcWriteMiddle        Rc Write        Middle NONE;
    0x08 RcWriteLast          Rc Write        Last   NONE;
    0x09 RcWriteLastImm       Rc Write        Last   IMMDT;
    0x0a RcWriteOnly          Rc Write        Only   RETH;
    0x0b RcWriteOnlyImm       Rc Write        Only   RETH_IMMDT;
    0x0c RcReadRequest        Rc ReadRequest  Only   RETH;
    0x0d RcReadResponseFirst  Rc ReadResponse First  AETH;
    0x0e RcReadResponseMiddle Rc ReadResponse Middle NONE;
    0x0f RcReadResponseLast   Rc ReadResponse Last   AETH;
    0x10 RcReadResponseOnly   Rc ReadResponse Only   AETH;
    0x11 RcAcknowledge        Rc Acknowledge  Only   AETH;
    0x12 RcAtomicAcknowledge  Rc AtomicAck    Only   AETH_ATOMIC;
    0x13 RcCompareSwap        Rc Atomic       Only   ATOMIC;
    0x14 RcFetchAdd           Rc Atomic       Only   ATOMIC;
    0x16 RcSendLastInv        Rc Send         Last   IETH;
    0x17 RcSendOnlyInv        Rc Send         Only   IETH;
    0x1c RcFlush              Rc Flush        Only   FETH_RETH;
    0x1d RcAtomicWrite        Rc AtomicWrite  Only   RETH;
    0x1f RcInvalid            Rc Invalid      Only   NONE;
    0x20 UcSendFirst          Uc Send         First  NONE;
    0x21 UcSendMiddle         Uc Send         Middle NONE;
    0x22 UcSendLast           Uc Send         Last   NONE;
    0x23 UcSendLastImm        Uc Send         Last   IMMDT;
    0x24 UcSendOnly           Uc Send         Only   NONE;
    0x25 UcSendOnlyImm        Uc Send         Only   IMMDT;
    0x26 UcWriteFirst         Uc Write        First  RETH;
    0x27 UcWriteMiddle        Uc Write        Middle NONE;
    0x28 UcWriteLast          Uc Write        Last   NONE;
    0x29 UcWriteLastImm       Uc Write        Last   IMMDT;
    0x2a UcWriteOnly          Uc Write        Only   RETH;
    0x2b UcWriteOnlyImm       Uc Write        Only   RETH_IMMDT;
    0x64 UdSendOnly           Ud Send         Only   DETH;
    0x65 UdSendOnlyImm        Ud Send         Only   DETH_IMMDT;
    0x81 Cnp                  Rc Cnp          Only   CNP;
}

/// The opcodes and their properties, by number.
///
/// This is a table because a `match` would be a search: kernels are compiled without jump tables.
static TABLE: [(Option<Opcode>, Info); 256] = {
    let mut table = [(None, INVALID); 256];
    let mut rest: &mut [_] = &mut table;
    let mut raw = 0u8;
    while let [entry, others @ ..] = rest {
        if let Some(opcode) = Opcode::find(raw) {
            *entry = (Some(opcode), opcode.describe());
        }
        raw = raw.wrapping_add(1);
        rest = others;
    }
    table
};

/// The properties of the numbers that are not known.
const INVALID: Info = Opcode::RcInvalid.describe();

/// Declares the functions that tell which headers a packet has.
macro_rules! has_headers {
    ($(#[$doc:meta] $name:ident: $header:ident;)*) => {
        $(
            #[$doc]
            #[inline]
            pub fn $name(self) -> bool {
                self.info().headers.has(Headers::$header)
            }
        )*
    };
}

impl Opcode {
    /// Returns the opcode that a BTH carries as `raw`: [`Opcode::RcInvalid`] for an RC opcode that
    /// is not known, `None` for one of another service type.
    #[inline]
    pub fn parse(raw: u8) -> Option<Opcode> {
        TABLE.get(usize::from(raw)).and_then(|&(opcode, _)| opcode)
    }

    /// Returns the properties of the opcode.
    #[inline]
    fn info(self) -> &'static Info {
        // Every byte is a valid index, as the compiler sees.
        TABLE
            .get(usize::from(self.raw()))
            .map_or(&INVALID, |(_, info)| info)
    }

    /// Returns the number in the BTH.
    #[inline]
    pub const fn raw(self) -> u8 {
        // CAST: the discriminants are the numbers on the wire.
        self as u8
    }

    /// Returns the service type that the opcode belongs to.
    #[inline]
    pub fn transport(self) -> Transport {
        self.info().transport
    }

    /// Returns the operation.
    #[inline]
    pub fn operation(self) -> Operation {
        self.info().operation
    }

    /// Returns the position of the packet in its message.
    #[inline]
    pub fn position(self) -> Position {
        self.info().position
    }

    /// Returns whether the packet goes from requester to responder.
    #[inline]
    pub fn is_request(self) -> bool {
        matches!(
            self.operation(),
            Operation::Send
                | Operation::Write
                | Operation::ReadRequest
                | Operation::Atomic
                | Operation::AtomicWrite
                | Operation::Flush
                | Operation::Invalid
        )
    }

    /// Returns whether a message starts with the packet.
    #[inline]
    pub fn starts_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Returns whether a message ends with the packet.
    #[inline]
    pub fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    has_headers! {
        /// Returns whether a DETH follows the BTH.
        has_deth: DETH;
        /// Returns whether the packet has a FETH.
        has_feth: FETH;
        /// Returns whether the packet has an AtomicETH.
        has_atomic: ATOMIC;
        /// Returns whether the packet has a RETH.
        has_reth: RETH;
        /// Returns whether the packet has an AETH.
        has_aeth: AETH;
        /// Returns whether the packet has an AtomicAckETH.
        has_atomic_ack: ATOMIC_ACK;
        /// Returns whether the packet has immediate data.
        has_immdt: IMMDT;
        /// Returns whether the packet has an IETH.
        has_ieth: IETH;
    }

    /// Returns the length of all headers of the packet in bytes, including the BTH.
    ///
    /// It is at most [`MAX_HEADER_LEN`](crate::wire::MAX_HEADER_LEN).
    #[inline]
    pub fn header_len(self) -> usize {
        // CAST: Widening.
        self.info().header_len as usize
    }

    /// Returns the opcode of one packet of a SEND, or `None` if there is none.
    ///
    /// Datagrams are always [`Position::Only`]. Immediate data is in the packet that ends a
    /// message.
    #[inline]
    pub fn send(transport: Transport, position: Position, imm: bool) -> Option<Opcode> {
        Opcode::RcSendFirst.at(transport, position, imm)
    }

    /// Returns the opcode of one packet of a SEND with invalidate (RC).
    ///
    /// The key is in the packet that ends the message.
    #[inline]
    pub const fn send_inv(position: Position) -> Opcode {
        match position {
            Position::First => Opcode::RcSendFirst,
            Position::Middle => Opcode::RcSendMiddle,
            Position::Last => Opcode::RcSendLastInv,
            Position::Only => Opcode::RcSendOnlyInv,
        }
    }

    /// Returns the opcode of one packet of an RDMA WRITE, or `None` if there is none.
    ///
    /// UD has no WRITE. Immediate data is in the packet that ends a message.
    #[inline]
    pub fn write(transport: Transport, position: Position, imm: bool) -> Option<Opcode> {
        Opcode::RcWriteFirst.at(transport, position, imm)
    }

    /// Returns the opcode of another packet of the same operation, or `None` if there is none.
    ///
    /// `self` is the opcode of the first packet on RC. The opcodes of SEND and WRITE have the same
    /// order, and their top three bits are the service type.
    #[inline]
    fn at(self, transport: Transport, position: Position, imm: bool) -> Option<Opcode> {
        let service = match transport {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Ud => 0x60,
        };
        let offset = match (position, imm) {
            (Position::First, false) => 0,
            (Position::Middle, false) => 1,
            (Position::Last, false) => 2,
            (Position::Last, true) => 3,
            (Position::Only, false) => 4,
            (Position::Only, true) => 5,
            (Position::First | Position::Middle, true) => return None,
        };
        Opcode::parse(service | self.raw().wrapping_add(offset))
    }

    /// Returns the opcode of one packet of the response to an RDMA READ.
    #[inline]
    pub const fn read_response(position: Position) -> Opcode {
        match position {
            Position::First => Opcode::RcReadResponseFirst,
            Position::Middle => Opcode::RcReadResponseMiddle,
            Position::Last => Opcode::RcReadResponseLast,
            Position::Only => Opcode::RcReadResponseOnly,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_opcode))]
mod tests {
    use super::*;

    const TRANSPORTS: [Transport; 3] = [Transport::Rc, Transport::Uc, Transport::Ud];
    const POSITIONS: [Position; 4] = [
        Position::First,
        Position::Middle,
        Position::Last,
        Position::Only,
    ];

    #[test]
    fn parse_reverses_raw() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::parse(opcode.raw()), Some(*opcode));
        }
    }

    #[test]
    fn all_rc_opcodes_parse() {
        let mut others = 0;
        for raw in 0..=u8::MAX {
            match Opcode::parse(raw) {
                Some(Opcode::RcInvalid) => assert!(raw < 0x20),
                Some(opcode) => assert_eq!(opcode.raw(), raw),
                None => {
                    assert!(raw >= 0x20);
                    others += 1;
                }
            }
        }
        let known = Opcode::ALL.iter().filter(|opcode| opcode.raw() >= 0x20);
        assert_eq!(others + known.count(), 0xe0);
    }

    #[test]
    fn top_three_bits_give_transport() {
        for opcode in Opcode::ALL {
            let transport = match opcode.raw() >> 5 {
                0 => Transport::Rc,
                1 => Transport::Uc,
                3 => Transport::Ud,
                // Congestion notification has a service type of its own on the wire.
                _ => Transport::Rc,
            };
            assert_eq!(opcode.transport(), transport);
        }
    }

    #[test]
    fn headers_have_lengths_of_ibta() {
        assert_eq!(Opcode::RcSendMiddle.header_len(), 12);
        assert_eq!(Opcode::RcAcknowledge.header_len(), 16);
        assert_eq!(Opcode::RcSendOnlyInv.header_len(), 16);
        assert_eq!(Opcode::UdSendOnlyImm.header_len(), 24);
        assert_eq!(Opcode::RcReadRequest.header_len(), 28);
        assert_eq!(Opcode::UcWriteOnlyImm.header_len(), 32);
        assert_eq!(Opcode::RcCompareSwap.header_len(), 40);
        assert_eq!(Opcode::RcAtomicAcknowledge.header_len(), 24);
        assert_eq!(Opcode::RcFlush.header_len(), 32);
        assert_eq!(Opcode::RcAtomicWrite.header_len(), 28);
        assert_eq!(Opcode::Cnp.header_len(), 28);
        for opcode in Opcode::ALL {
            assert!(opcode.header_len() <= crate::wire::MAX_HEADER_LEN);
        }
    }

    #[test]
    fn positions() {
        assert_eq!(Position::of(0, 1), Position::Only);
        assert_eq!(Position::of(0, 3), Position::First);
        assert_eq!(Position::of(1, 3), Position::Middle);
        assert_eq!(Position::of(2, 3), Position::Last);
    }

    #[test]
    fn every_packet_of_a_message_has_an_opcode() {
        for transport in TRANSPORTS {
            for position in POSITIONS {
                for imm in [false, true] {
                    let ends = matches!(position, Position::Last | Position::Only);
                    let exists = ends || !imm;
                    let is_datagram = transport == Transport::Ud;
                    let send = Opcode::send(transport, position, imm);
                    let sends = exists && (!is_datagram || position == Position::Only);
                    assert_eq!(send.is_some(), sends);
                    let write = Opcode::write(transport, position, imm);
                    assert_eq!(write.is_some(), exists && !is_datagram);
                    for (opcode, operation) in [(send, Operation::Send), (write, Operation::Write)]
                    {
                        let Some(opcode) = opcode else { continue };
                        assert!(opcode.operation() == operation);
                        assert!(opcode.transport() == transport);
                        assert!(opcode.position() == position && opcode.has_immdt() == imm);
                    }
                }
            }
        }
        for position in POSITIONS {
            let opcode = Opcode::read_response(position);
            assert!(opcode.operation() == Operation::ReadResponse);
            assert!(opcode.position() == position);
        }
    }

    #[test]
    fn responses_are_not_requests() {
        for opcode in Opcode::ALL {
            let is_response = matches!(
                opcode.operation(),
                Operation::ReadResponse
                    | Operation::Acknowledge
                    | Operation::AtomicAck
                    | Operation::Cnp
            );
            let is_valid = opcode.operation() != Operation::Invalid;
            assert!(!is_valid || opcode.is_request() != is_response);
        }
    }
}
