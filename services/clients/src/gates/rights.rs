//! Ownership and core rights (specification 05 §8.4, §8.5): what the caller may do to the thing its
//! arguments name, once they are decoded.

use super::{GateError, Ownership, Rule};

/// Who has claimed the core that a call writes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreClaimed {
    /// The call writes into no core: it reads, or its destination lies elsewhere.
    NotWritten,
    /// The caller.
    ByCaller,
    /// Another client.
    ByAnother,
    /// Nobody.
    ByNobody,
}

/// What the arguments of a call name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// The chunk, queue, request or mapping belongs to the caller; the destination of a copy.
    pub owned: bool,
    /// The call writes to it.
    pub written: bool,
    /// The core that is written into.
    pub core: CoreClaimed,
}

impl Rule {
    /// Ownership, then the core right.
    ///
    /// # Errors
    /// EPERM, saying which of the two is missing.
    pub fn check_rights(&self, named: Named) -> Result<(), GateError> {
        let must_own = match self.ownership {
            Ownership::Nothing => false,
            Ownership::Named => true,
            Ownership::Written => named.written,
        };
        if must_own && !named.owned {
            return Err(GateError::NotOwner);
        }
        match named.core {
            CoreClaimed::ByAnother | CoreClaimed::ByNobody if self.core_right => {
                Err(GateError::CoreNotClaimed { claimed: named.core == CoreClaimed::ByAnother })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::*;
    use crate::gates::Form;

    fn rule(name: &str) -> &'static Rule {
        Form::named(name).unwrap().command.rule()
    }

    fn core(core: CoreClaimed) -> Named {
        Named { owned: true, written: true, core }
    }

    #[test]
    fn st_e60_what_writes_into_a_core_needs_the_core() {
        for write in ["SEMAPHORE_WRITE", "EVENT_SET", "PROGRAM_ENGINE_NC64", "DMA_ENG_SET_STATE"] {
            let check = |claimed| rule(write).check_rights(core(claimed));
            for claimed in [CoreClaimed::ByNobody, CoreClaimed::ByAnother] {
                assert_eq!(check(claimed).unwrap_err().errno(), Errno::EPERM, "{write}");
            }
            assert_eq!(check(CoreClaimed::ByCaller), Ok(()), "{write}");
            assert_eq!(check(CoreClaimed::NotWritten), Ok(()), "{write}");
        }
        for read in ["SEMAPHORE_READ", "EVENT_GET"] {
            for claimed in [CoreClaimed::ByNobody, CoreClaimed::ByAnother, CoreClaimed::ByCaller] {
                assert_eq!(rule(read).check_rights(core(claimed)), Ok(()), "{read}");
            }
        }
    }

    #[test]
    fn another_clients_things_may_be_read_but_not_written() {
        let foreign = |written| Named { owned: false, written, core: CoreClaimed::NotWritten };
        assert_eq!(rule("MEM_BUF_COPY64").check_rights(foreign(false)), Ok(()));
        for (name, written) in [
            ("MEM_BUF_COPY64", true),
            ("MEM_BUF_ZEROCOPY64", true),
            ("MEM_COPY", true),
            ("MEM_FREE", true),
            ("DMA_QUEUE_COPY_START", true),
            ("DMA_DESCRIPTOR_COPYOUT", false),
        ] {
            let refused = rule(name).check_rights(foreign(written)).unwrap_err();
            assert_eq!(refused, GateError::NotOwner, "{name}");
            assert_eq!(refused.errno(), Errno::EPERM);
        }
        assert_eq!(rule("DMA_QUEUE_GET_STATE").check_rights(foreign(false)), Ok(()));
    }
}
