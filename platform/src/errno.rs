//! The POSIX error number that every error of axon carries as data.

use core::fmt;

/// Error number that the Linux driver would have returned for the same condition.
///
/// It is data for people and for a C ABI; code decides on the error's variant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            /// Symbolic name, or `"E?"` for a number without one.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    _ => "E?",
                }
            }

            /// The error number with this symbolic name.
            pub fn from_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno::$name),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "attached, but the object belongs to another client";
    ENOENT = 2, "no such object, or the handle table is down";
    EINTR = 4, "given up while waiting";
    EIO = 5, "the device failed, aborted or is gone";
    ENXIO = 6, "not allocated to this core";
    E2BIG = 7, "index or count above a fixed limit";
    EAGAIN = 11, "would have to wait, or the buffer is too small";
    ENOMEM = 12, "no memory of the kind asked for";
    EACCES = 13, "not attached";
    EFAULT = 14, "address not accessible";
    EBUSY = 16, "taken by somebody else";
    EEXIST = 17, "exists with other parameters";
    ENODEV = 19, "function absent, refused or removed";
    EINVAL = 22, "bad value";
    EMFILE = 24, "too many objects";
    EFBIG = 27, "past the end";
    ENOSPC = 28, "no free host-transfer queue";
    EPIPE = 32, "the other side is gone";
    ENOSYS = 38, "no such command";
    EBADMSG = 74, "malformed record";
    EOVERFLOW = 75, "notifications were lost";
    EPROTONOSUPPORT = 93, "protocol not supported";
    EOPNOTSUPP = 95, "not supported by this generation, firmware or build";
    ETIMEDOUT = 110, "deadline passed";
    EALREADY = 114, "the queue is a host-transfer ring";
    ESTALE = 116, "registered before the last reset of its core";
    ECANCELED = 125, "ended by a reset, a client drop or a removal";
}

impl Errno {
    /// The positive number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
