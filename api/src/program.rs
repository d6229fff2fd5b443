//! Writes into the engines of a core by DMA: instructions, tables, state buffer
//! (PROGRAM_ENGINE, specification 04 §9.3).

use axon_clients::Touched;
use axon_neuron::Target;
use axon_platform::{DeviceAddr, Platform};
use axon_ports::{AllocRequest, Category, CoreId, Lifespan, Pin};

use crate::calls::Call;
use crate::{Client, Error};

impl<P: Platform> Client<P> {
    /// Writes `data` to a device address by one copy on the ring of `core`. The whole range must
    /// lie in one window that may be programmed; a range in a core's own windows needs a claim on
    /// that core, a range of HBM must lie in a chunk that this client may write.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no data; [`Error::NoSuchAddress`] (ENOMEM, as the command it
    /// replaces) outside the windows; [`Error::Gate`] (EPERM) without the claim;
    /// [`Error::WrongOwner`]; [`Error::NotAttached`]; those of a copy.
    pub async fn program_engine(
        &self,
        core: CoreId,
        address: DeviceAddr,
        data: &[u8],
    ) -> Result<(), Error> {
        Call::Program.enter(self.access(), Touched::Transfers)?;
        let len = data.len() as u64;
        if len == 0 {
            return Err(Error::EMPTY);
        }
        let held = self.check_program_target(core, address, len).await?;
        let request = AllocRequest {
            client: self.request().client,
            lifespan: Lifespan::Local,
            category: Category::NCDEV_HOST,
            ..AllocRequest::driver_host(len)
        };
        let bounce = self.device().memory().alloc(request).await?;
        bounce.host().ok_or(Error::NotAttached)?.write(0, data)?;
        let pin = bounce.pin().ok_or(Error::NotAttached)?;
        // A window of a core has no chunk that could be pinned; the claim is what holds it.
        let held = held.unwrap_or_else(|| pin.clone());
        let source = Target { address: pin.pa(), pin };
        let destination = Target { address, pin: held };
        let dma = self.device().neuron().dma();
        Ok(dma.copy(core, source, destination, len).await?)
    }

    /// Whether this client may program the range; answers what has to be pinned meanwhile.
    async fn check_program_target(
        &self,
        core: CoreId,
        address: DeviceAddr,
        len: u64,
    ) -> Result<Option<Pin>, Error> {
        let device = self.device();
        let hal = device.neuron().hal();
        let outside = Error::NoSuchAddress { address: address.0 };
        if !hal.is_program_target(address, len) || !hal.has_core(core) {
            return Err(outside);
        }
        let geometry = device.memory().geometry();
        let in_hbm = geometry.channels.iter().take(geometry.channel_count.into()).any(|channel| {
            address.0.checked_sub(channel.base.0).is_some_and(|at| at < channel.size)
        });
        if in_hbm {
            let view = self.within(address, len).await?;
            view.check_writable()?;
            return Ok(Some(view.into_pin()));
        }
        // V2 names ranges that span neighbouring tiles: the claim is on the cores of both ends.
        // assumed: a window that belongs to no core needs the core that programs it.
        for end in [address.0, address.0 + (len - 1)] {
            let owner = hal.core_of_window(DeviceAddr(end), 1).unwrap_or(core);
            self.core(owner.number())?.check_claim()?;
        }
        Ok(None)
    }
}
