//! How a node of the language looks: its arguments, settings and children. The forms are data, so that one walk checks
//! every file, suggests what was meant, and a test can ask whether the reference names everything.

use std::time::Duration;

use crate::base::units::Bytes;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text; its reader looks closer.
    Text {
        /// What it stands for: `a pool's name`.
        what: &'static str,
    },
    /// One of some words.
    Word {
        /// Those that work.
        now: &'static [&'static str],
        /// Those that belong to the language and are not supported yet.
        later: &'static [&'static str],
    },
    /// A whole number.
    Whole {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A whole number, or `"off"`.
    WholeOrOff {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// `#true` or `#false`.
    Switch,
    /// A duration with its unit.
    Duration {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// A size with its unit.
    Size {
        /// The least.
        min: Bytes,
        /// The greatest.
        max: Bytes,
    },
}

/// A named value: a property `name="value"`, or a child node `name "value"`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// Whether it may be repeated, and its node may have several values.
    pub is_list: bool,
    /// Whether it belongs to the language and is not supported yet.
    pub is_later: bool,
}

impl Setting {
    /// A setting with one value.
    pub const fn one(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, is_list: false, is_later: false }
    }

    /// A setting with one value that is a text.
    pub const fn text(name: &'static str, what: &'static str) -> Self {
        Self::one(name, Kind::Text { what })
    }

    /// A setting with any number of values.
    pub const fn list(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, is_list: true, is_later: false }
    }

    /// A setting that is not supported yet.
    pub const fn later(name: &'static str) -> Self {
        Self { name, kind: Kind::Text { what: "a text" }, is_list: true, is_later: true }
    }
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct NodeForm {
    /// Its name.
    pub name: &'static str,
    /// How it is written, as messages show it.
    pub usage: &'static str,
    /// Its arguments in order.
    pub arguments: &'static [Kind],
    /// How many of them must be there.
    pub required: usize,
    /// Whether the last of them may be repeated.
    pub is_open: bool,
    /// Its named values.
    pub settings: &'static [Setting],
    /// Its child nodes, apart from settings.
    pub children: &'static [&'static NodeForm],
    /// Whether its parent may have several.
    pub is_list: bool,
    /// Whether it belongs to the language and is not supported yet.
    pub is_later: bool,
}

impl NodeForm {
    /// A node without arguments, settings and children that may stand once.
    pub const fn new(name: &'static str, usage: &'static str) -> Self {
        Self {
            name,
            usage,
            arguments: &[],
            required: 0,
            is_open: false,
            settings: &[],
            children: &[],
            is_list: false,
            is_later: false,
        }
    }

    /// A node that is not supported yet.
    pub const fn later(name: &'static str) -> Self {
        let mut form = Self::new(name, "");
        form.is_later = true;
        form.is_list = true;
        form
    }

    /// With these arguments, the first `required` of which must be there.
    pub const fn taking(mut self, arguments: &'static [Kind], required: usize) -> Self {
        self.arguments = arguments;
        self.required = required;
        self
    }

    /// With the last argument as often as wanted.
    pub const fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// With these settings.
    pub const fn with(mut self, settings: &'static [Setting]) -> Self {
        self.settings = settings;
        self
    }

    /// With these child nodes.
    pub const fn holding(mut self, children: &'static [&'static Self]) -> Self {
        self.children = children;
        self
    }

    /// That may stand several times.
    pub const fn repeated(mut self) -> Self {
        self.is_list = true;
        self
    }

    /// The setting of that name.
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// The child node of that name.
    pub fn child(&self, name: &str) -> Option<&'static Self> {
        self.children.iter().find(|form| form.name == name).copied()
    }

    /// The names of all settings and child nodes that are supported.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let settings = self.settings.iter().filter(|setting| !setting.is_later).map(|setting| setting.name);
        settings.chain(self.children.iter().filter(|form| !form.is_later).map(|form| form.name))
    }
}
