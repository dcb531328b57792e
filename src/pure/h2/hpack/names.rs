//! The names that heads are mostly made of, and how their fields are written.
//!
//! A field that is mostly the same from one message to the next on a connection is kept in the table. One that is not would
//! only push the others out, and one whose value is a secret must not be found out by trying (RFC 7541 7.1). All other names
//! are written in full, and their fields pass.

/// The longest name that is known.
pub(super) const NAME_MAX: usize = 32;
/// How many slots there are.
pub(super) const SLOTS: usize = 62 + OTHERS as usize;
/// How many names are known beside those of the static table.
const OTHERS: u8 = 20;

/// `:status`.
pub(super) const STATUS: KnownName = passing(8);

/// A name that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownName {
    /// A number of its own: its first index in the static table, or one above all of these.
    pub(super) slot: u8,
    /// How its fields are written.
    pub(super) habit: Habit,
}

/// How fields of a name are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// They are put into the table.
    Kept,
    /// They are not.
    Passing,
    /// They are not, and nobody behind the other side may do so either.
    Secret,
}

impl KnownName {
    /// Its index in the static table; 0 where it is not there.
    pub(super) const fn static_index(self) -> u8 {
        if self.slot <= 61 { self.slot } else { 0 }
    }
}

/// A name in lower case that is short enough to be known.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowerName {
    bytes: [u8; NAME_MAX],
    length: usize,
}

impl LowerName {
    /// Nothing where it is too long.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; NAME_MAX];
        let place = bytes.get_mut(..name.len())?;
        if let Some(last) = name.last_chunk() {
            for (place, letters) in place.as_chunks_mut().0.iter_mut().zip(name.as_chunks().0) {
                *place = lower_case(*letters);
            }
            *place.last_chunk_mut()? = lower_case(*last);
        } else {
            for (place, letter) in place.iter_mut().zip(name) {
                *place = letter.to_ascii_lowercase();
            }
        }
        Some(Self { bytes, length: name.len() })
    }

    /// The name.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Eight letters at a time: a sum reaches a byte's high bit where the byte is at least `A`, and where it is above `Z`.
const fn lower_case(letters: [u8; 8]) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let letters = u64::from_ne_bytes(letters);
    let low_bits = letters & (EACH * 0x7F);
    let from_a = low_bits + EACH * (0x80 - b'A' as u64);
    let above_z = low_bits + EACH * (0x7F - b'Z' as u64);
    let capitals = (from_a ^ above_z) & !letters & (EACH * 0x80);
    (letters | capitals >> 2).to_ne_bytes()
}

/// What is known of a name in lower case.
pub(super) const fn known(name: &[u8]) -> Option<KnownName> {
    match name.len() {
        ..=10 => known_short(name),
        11..=15 => known_middle(name),
        _ => known_long(name),
    }
}

const fn kept(slot: u8) -> KnownName {
    KnownName { slot, habit: Habit::Kept }
}

const fn passing(slot: u8) -> KnownName {
    KnownName { slot, habit: Habit::Passing }
}

const fn secret(slot: u8) -> KnownName {
    KnownName { slot, habit: Habit::Secret }
}

const fn known_short(name: &[u8]) -> Option<KnownName> {
    Some(match name.len() {
        2 => match name {
            b"te" => kept(62),
            _ => return None,
        },
        3 => match name {
            b"age" => passing(21),
            b"via" => kept(60),
            _ => return None,
        },
        4 => match name {
            b"date" => kept(33),
            b"etag" => passing(34),
            b"from" => passing(37),
            b"host" => passing(38),
            b"link" => passing(45),
            b"vary" => kept(59),
            _ => return None,
        },
        5 => match name {
            b":path" => passing(4),
            b"allow" => passing(22),
            b"range" => passing(50),
            _ => return None,
        },
        6 => match name {
            b"accept" => kept(19),
            b"cookie" => secret(32),
            b"expect" => passing(35),
            b"origin" => kept(68),
            b"server" => kept(54),
            _ => return None,
        },
        7 => match name {
            b":method" => passing(2),
            b":scheme" => passing(6),
            b":status" => passing(8),
            b"alt-svc" => kept(69),
            b"expires" => passing(36),
            b"referer" => passing(51),
            b"refresh" => passing(52),
            _ => return None,
        },
        8 => match name {
            b"if-match" => passing(39),
            b"if-range" => passing(42),
            b"location" => passing(46),
            _ => return None,
        },
        10 => match name {
            b":authority" => kept(1),
            b"set-cookie" => secret(55),
            b"user-agent" => kept(58),
            _ => return None,
        },
        _ => return None,
    })
}

const fn known_middle(name: &[u8]) -> Option<KnownName> {
    Some(match name.len() {
        11 => match name {
            b"grpc-status" => kept(74),
            b"retry-after" => passing(53),
            _ => return None,
        },
        12 => match name {
            b"content-type" => kept(31),
            b"max-forwards" => passing(47),
            _ => return None,
        },
        13 => match name {
            b"accept-ranges" => kept(18),
            b"authorization" => secret(23),
            b"cache-control" => kept(24),
            b"content-range" => passing(30),
            b"grpc-encoding" => kept(66),
            b"if-none-match" => passing(41),
            b"last-modified" => passing(44),
            _ => return None,
        },
        14 => match name {
            b"accept-charset" => passing(15),
            b"content-length" => passing(28),
            _ => return None,
        },
        15 => match name {
            b"accept-encoding" => kept(16),
            b"accept-language" => kept(17),
            b"referrer-policy" => kept(72),
            b"x-frame-options" => kept(71),
            _ => return None,
        },
        _ => return None,
    })
}

const fn known_long(name: &[u8]) -> Option<KnownName> {
    Some(match name.len() {
        16 => match name {
            b"content-encoding" => kept(26),
            b"content-language" => passing(27),
            b"content-location" => passing(29),
            b"www-authenticate" => passing(61),
            b"x-forwarded-host" => kept(64),
            b"x-forwarded-port" => kept(65),
            _ => return None,
        },
        17 => match name {
            b"if-modified-since" => passing(40),
            b"transfer-encoding" => passing(57),
            b"x-forwarded-proto" => kept(63),
            _ => return None,
        },
        18 => match name {
            b"proxy-authenticate" => passing(48),
            _ => return None,
        },
        19 => match name {
            b"content-disposition" => passing(25),
            b"if-unmodified-since" => passing(43),
            b"proxy-authorization" => secret(49),
            _ => return None,
        },
        20 => match name {
            b"grpc-accept-encoding" => kept(67),
            _ => return None,
        },
        22 => match name {
            b"access-control-max-age" => kept(79),
            b"x-content-type-options" => kept(70),
            _ => return None,
        },
        23 => match name {
            b"content-security-policy" => kept(73),
            _ => return None,
        },
        25 => match name {
            b"strict-transport-security" => kept(56),
            _ => return None,
        },
        27 => match name {
            b"access-control-allow-origin" => kept(20),
            _ => return None,
        },
        28 => match name {
            b"access-control-allow-headers" => kept(76),
            b"access-control-allow-methods" => kept(77),
            _ => return None,
        },
        29 => match name {
            b"access-control-expose-headers" => kept(78),
            b"access-control-request-method" => kept(81),
            _ => return None,
        },
        30 => match name {
            b"access-control-request-headers" => kept(80),
            _ => return None,
        },
        32 => match name {
            b"access-control-allow-credentials" => kept(75),
            _ => return None,
        },
        _ => return None,
    })
}
