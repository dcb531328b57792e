//! A socket filter that passes datagrams of some sources and no others, as a program of the classic Berkeley packet filter:
//! what is foreign is dropped by the kernel before it costs anybody anything. It refuses to attach itself to a socket.
//!
//! Sources: S. McCanne, V. Jacobson, The BSD packet filter, 1993; Linux Documentation/networking/filter.rst.

use std::net::IpAddr;

use crate::pure::rule::Cidr;

/// The longest program that the kernel takes.
const INSTRUCTIONS_MAX: usize = 4096;

/// Loads count from the head of the network layer. (`SKF_NET_OFF`, -0x100000.)
const NETWORK: u32 = 0xFFF0_0000;

/// Where an IPv4 head has its source, in bytes (RFC 791 3.1).
const SOURCE_V4: u32 = 12;

/// Where an IPv6 head has its source (RFC 8200 3).
const SOURCE_V6: u32 = 8;

const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// An instruction as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// How many instructions are skipped where a comparison holds.
    pub if_true: u8,
    /// The same where it does not.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

const fn instruction(code: u16, operand: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, operand }
}

/// Skips so many where the value is not this.
const fn unless_equal(value: u32, skipped: u8) -> Instruction {
    Instruction { code: JUMP_EQUAL, if_true: 0, if_false: skipped, operand: value }
}

/// The program that passes datagrams from these ranges alone; `None`: it would be longer than the kernel takes.
pub fn program(sources: &[Cidr]) -> Option<Vec<Instruction>> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for source in sources {
        match source.address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix = if source.address.is_ipv6() { source.prefix.saturating_sub(96) } else { source.prefix };
                v4.push((u128::from(address.to_bits()) << 96, prefix.min(32)));
            }
            IpAddr::V6(address) => v6.push((address.to_bits(), source.prefix.min(128))),
        }
    }
    let passes = |ranges: &mut Vec<(u128, u8)>, offset: u32| {
        ranges.sort_unstable();
        ranges.dedup();
        let mut program: Vec<Instruction> = ranges.iter().flat_map(|range| block(*range, offset)).collect();
        program.push(instruction(RETURN, 0));
        program
    };
    let (v4, v6) = (passes(&mut v4, SOURCE_V4), passes(&mut v6, SOURCE_V6));
    let mut program = vec![
        instruction(LOAD_BYTE, NETWORK),
        instruction(AND, 0xF0),
        unless_equal(0x40, 1),
        instruction(JUMP, 1),
        instruction(JUMP, u32::try_from(v4.len()).ok()?),
    ];
    program.extend(v4);
    program.extend([instruction(LOAD_BYTE, NETWORK), instruction(AND, 0xF0), unless_equal(0x60, 1)]);
    program.extend([instruction(JUMP, 1), instruction(RETURN, 0)]);
    program.extend(v6);
    (program.len() <= INSTRUCTIONS_MAX).then_some(program)
}

/// Passes a datagram whose source at `offset` has the first `prefix` bits of `bits`; else goes on behind the block.
fn block((bits, prefix): (u128, u8), offset: u32) -> Vec<Instruction> {
    let mut steps = Vec::new();
    for word in 0..4u32 {
        let wanted = u32::from(prefix).saturating_sub(32 * word).min(32);
        if wanted == 0 {
            break;
        }
        let mask = u32::MAX << (32 - wanted);
        let value = (bits >> (96 - 32 * word)) as u32 & mask;
        steps.push(instruction(LOAD_WORD, NETWORK + offset + 4 * word));
        if mask != u32::MAX {
            steps.push(instruction(AND, mask));
        }
        steps.push(unless_equal(value, 0));
    }
    steps.push(instruction(RETURN, u32::MAX));
    let length = steps.len();
    for (position, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.code == JUMP_EQUAL) {
        // At most twelve.
        step.if_false = u8::try_from(length - position - 1).unwrap_or(u8::MAX);
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Runs a program over a datagram as the kernel would.
    fn passes(program: &[Instruction], source: IpAddr) -> bool {
        let mut head = [0u8; 40];
        match source {
            IpAddr::V4(address) => {
                head[0] = 0x45;
                head[12..16].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                head[0] = 0x60;
                head[8..24].copy_from_slice(&address.octets());
            }
        }
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let Instruction { code, if_true, if_false, operand } = program[at];
            at += 1;
            let offset = operand.wrapping_sub(NETWORK) as usize;
            match code {
                LOAD_WORD => value = u32::from_be_bytes(head[offset..offset + 4].try_into().unwrap()),
                LOAD_BYTE => value = u32::from(head[offset]),
                AND => value &= operand,
                JUMP => at += operand as usize,
                JUMP_EQUAL => at += usize::from(if value == operand { if_true } else { if_false }),
                RETURN => return operand != 0,
                _ => panic!("no such instruction"),
            }
        }
    }

    fn cidr(text: &str) -> Cidr {
        let (address, prefix) = text.split_once('/').unwrap();
        Cidr { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn only_named_sources_pass() {
        let program = program(&[cidr("10.0.0.0/8"), cidr("192.0.2.7/32"), cidr("2001:db8::/33")]).unwrap();
        for (source, expected) in [
            ("10.9.9.9", true),
            ("11.0.0.0", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:7fff::1", true),
            ("2001:db8:8000::1", false),
            ("::1", false),
        ] {
            assert_eq!(passes(&program, source.parse().unwrap()), expected, "{source}");
        }
    }

    #[test]
    fn no_range_passes_nothing_and_a_range_of_all_passes_all() {
        let (nobody, everybody) = (program(&[]).unwrap(), program(&[cidr("0.0.0.0/0"), cidr("::/0")]).unwrap());
        for source in ["10.0.0.1", "::1", "2001:db8::1"] {
            assert!(!passes(&nobody, source.parse().unwrap()));
            assert!(passes(&everybody, source.parse().unwrap()));
        }
    }

    #[test]
    fn a_program_that_the_kernel_would_not_take_is_none() {
        let many = |count: u32| -> Vec<Cidr> {
            (0..count).map(|number| Cidr { address: Ipv4Addr::from_bits(number).into(), prefix: 32 }).collect()
        };
        assert!(program(&many(1_300)).is_some());
        assert_eq!(program(&many(1_400)), None);
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            // Close enough to each other to meet.
            (0u32..16, 0u32..4).prop_map(|(high, low)| IpAddr::V4(Ipv4Addr::from_bits(high << 28 | low))),
            (0u128..4, 0u128..4, 0u128..4)
                .prop_map(|(high, middle, low)| Ipv6Addr::from_bits(high << 126 | middle << 60 | low).into()),
            (0u32..4).prop_map(|low| Ipv4Addr::from_bits(low).to_ipv6_mapped().into()),
        ]
    }

    proptest! {
        #[test]
        fn it_passes_what_the_ranges_contain(
            ranges in prop::collection::vec((address(), 0u8..=128), 0..6),
            source in address(),
        ) {
            let ranges: Vec<Cidr> = ranges
                .into_iter()
                .map(|(address, prefix)| {
                    let is_mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
                    let prefix = if is_mapped { prefix.max(96) } else if address.is_ipv4() { prefix.min(32) } else { prefix };
                    Cidr { address, prefix }
                })
                .collect();
            // A datagram of IPv4 has an IPv4 head, whatever the socket calls its source.
            let source = source.to_canonical();
            let expected = ranges.iter().any(|range| range.contains(source));
            prop_assert_eq!(passes(&program(&ranges).unwrap(), source), expected);
        }
    }
}
