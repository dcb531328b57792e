//! What may be done for the servers of a pool, as the rule files have it: the steps that are allowed, and the machines.
//!
//! Passwords are never in here, only the names of their files.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::id::ServerId;

/// What may be done for the servers of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether agents are told to restart services.
    pub restart: bool,
    /// Where magic packets are sent; `None`: no machine is woken.
    pub wake_on_lan: Option<SocketAddr>,
    /// The program that speaks IPMI; `None`: no machine is power-cycled.
    pub ipmi: Option<PathBuf>,
    /// Whether everything is decided and shown, and nothing done.
    pub is_dry_run: bool,
}

/// The machine that a server runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name: servers with the same are on one machine.
    pub name: Arc<str>,
    /// Where magic packets find it.
    pub mac: Option<MacAddress>,
    /// How its power is switched.
    pub ipmi: Option<Ipmi>,
}

/// The board of a machine that switches its power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipmi {
    /// Its host name or address.
    pub address: String,
    /// The user there.
    pub user: Option<String>,
    /// The file that has the password.
    pub password_file: Option<PathBuf>,
}

/// The machines of all servers: what one server says of its machine holds for all that are on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    names: BTreeMap<ServerId, Arc<str>>,
    described: BTreeMap<Arc<str>, Machine>,
}

impl Machines {
    /// The server is on the machine of that name.
    pub fn put(&mut self, server: ServerId, machine: &Arc<str>) {
        self.names.insert(server, Arc::clone(machine));
    }

    /// This is known of a machine.
    pub fn describe(&mut self, machine: Machine) {
        self.described.insert(Arc::clone(&machine.name), machine);
    }

    /// What is known of a machine; `None`: nothing.
    pub fn get(&self, name: &str) -> Option<&Machine> {
        self.described.get(name)
    }

    /// The name of a server's machine; one that is not known is a machine of its own.
    pub fn name_of(&self, server: &ServerId) -> Arc<str> {
        self.names.get(server).map_or_else(|| server.to_string().into(), Arc::clone)
    }
}

/// The length of a magic packet, in bytes.
pub const MAGIC_PACKET_LENGTH: usize = 6 + 16 * 6;

/// The address of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Reads `aa:bb:cc:dd:ee:ff`, with `:` or `-` between. An address of many (an odd first byte) is nobody's, nor is zero.
    pub fn parse(text: &str) -> Option<Self> {
        let sign = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(sign);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        let is_one = bytes.first().is_some_and(|first| first & 1 == 0) && bytes != [0; 6];
        (parts.next().is_none() && is_one).then_some(Self(bytes))
    }

    /// What wakes that interface's machine: six bytes FF, then its address sixteen times.
    pub fn magic_packet(self) -> [u8; MAGIC_PACKET_LENGTH] {
        let mut packet = [0xFF; MAGIC_PACKET_LENGTH];
        for (byte, own) in packet.iter_mut().skip(6).zip(self.0.iter().cycle()) {
            *byte = *own;
        }
        packet
    }
}

impl std::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_interfaces_are_read_and_others_are_not() {
        let expected = MacAddress([0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc]);
        for text in ["00:1b:21:aa:bb:cc", "00-1B-21-AA-BB-CC"] {
            assert_eq!(MacAddress::parse(text), Some(expected), "{text}");
        }
        assert_eq!(expected.to_string(), "00:1b:21:aa:bb:cc");
        for text in [
            "",
            "00:1b:21:aa:bb",
            "00:1b:21:aa:bb:cc:dd",
            "00:1b:21-aa:bb:cc",
            "0:1b:21:aa:bb:ccc",
            "00:1b:21:aa:bb:gg",
            "+0:1b:21:aa:bb:cc",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "01:00:5e:00:00:01",
        ] {
            assert_eq!(MacAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_magic_packet_is_six_times_ff_and_sixteen_times_the_address() {
        let packet = MacAddress([2, 3, 4, 5, 6, 7]).magic_packet();
        let mut expected = vec![0xFF; 6];
        for _ in 0..16 {
            expected.extend([2, 3, 4, 5, 6, 7]);
        }
        assert_eq!(packet.as_slice(), expected);
    }
}
