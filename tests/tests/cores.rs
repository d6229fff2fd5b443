//! What clients agree on about cores, through the API.

use std::time::Duration;

use axon::ports::{CoreMap, GlobalCore, ModelUuid};
use axon::{Client, Context, Error, Hold, Init, InitState};
use axon_hosted::Machine;
use axon_platform::{Errno, Platform};
use axon_tests::{on, on_each};

const MODEL: ModelUuid = ModelUuid([7; 32]);

async fn clients(cx: &Context<Machine>, device: u32) -> [Client<Machine>; 2] {
    cx.driver.settled().await;
    let device = cx.driver.device(device).unwrap();
    [device.open().await.unwrap(), device.open().await.unwrap()]
}

async fn a_moment(cx: &Context<Machine>) {
    cx.platform.sleep(Duration::from_millis(1)).await;
}

#[test]
fn st_e36_the_end_of_a_client_frees_the_cores_that_carry_its_models() {
    on_each("{}", async |cx| {
        let [a, b] = clients(&cx, 0).await;
        let core = a.core(1).unwrap();
        let reader = core.model_writer(MODEL).await.unwrap().downgrade().unwrap();
        a_moment(&cx).await;
        assert_eq!(core.model_starts(), 1);
        let others = b.core(1).unwrap();
        assert_eq!(others.model_reader(MODEL).await.err().unwrap().errno(), Errno::ENOENT);
        a.close().await;
        let writer = others.model_writer(MODEL).await.unwrap();
        assert!(!writer.already_loaded());
        // What the client that left still holds means nothing any more.
        drop(reader);
        a_moment(&cx).await;
        assert_eq!(b.device().model_lock(core.id()).hold, Hold::Writer);
        assert_eq!(core.model_reader(MODEL).await.err().unwrap(), Error::NotAttached);
    });
}

#[test]
fn a_reset_ends_an_initialisation_but_no_lock_and_no_claim() {
    on_each("{}", async |cx| {
        let [a, b] = clients(&cx, 0).await;
        let core = a.core(1).unwrap();
        let Init::Mine(ticket) = core.begin_init().await.unwrap() else { panic!("done already") };
        let reader = core.model_writer(MODEL).await.unwrap().downgrade().unwrap();
        let claim = a.claim(1, 1..=1).await.unwrap();
        b.reset(CoreMap(1 << 1)).unwrap().await.unwrap();
        assert_eq!(ticket.complete().await.unwrap_err().errno(), Errno::ESTALE);
        assert_eq!(a.device().init_state(core.id()).state, InitState::Invalid);
        assert_eq!(a.device().model_lock(core.id()).hold, Hold::Readers(1));
        assert_eq!(core.check_claim(), Ok(()));
        drop((reader, claim));
    });
}

#[test]
fn st_e60_the_right_to_write_into_a_core_is_the_claim() {
    on("trn1,trn2", async |cx| {
        let [a, b] = clients(&cx, 1).await;
        let core = a.core(3).unwrap();
        assert_eq!(core.check_claim().unwrap_err().errno(), Errno::EPERM);
        let claim = b.claim(2, 3..=7).await.unwrap();
        assert_eq!(core.check_claim().unwrap_err().errno(), Errno::EPERM);
        assert_eq!(b.core(3).unwrap().check_claim(), Ok(()));
        // Cores of device 1 of eight cores each: 8 to 15.
        assert_eq!(cx.driver.core_owner(GlobalCore::new(11).unwrap()), Some(b.id()));
        drop(claim);
        assert_eq!(b.core(3).unwrap().check_claim().unwrap_err().errno(), Errno::EPERM);
        let claim = a.claim(1, 3..=3).await.unwrap();
        assert_eq!(core.check_claim(), Ok(()));
        a.close().await;
        a_moment(&cx).await;
        assert_eq!(cx.driver.claimed_cores(), 0, "claims end with their client at the latest");
        drop(claim);
    });
}

#[test]
fn cores_that_are_not_there() {
    on_each("{}", async |cx| {
        let [a, _b] = clients(&cx, 0).await;
        let cores = a.device().hal().cores();
        assert_eq!(a.core(cores.into()).err().unwrap().errno(), Errno::E2BIG);
        assert_eq!(a.claim(1, 0..=512).await.err().unwrap().errno(), Errno::EINVAL);
        let refused = a.claim(9, 0..=7).await.err().unwrap();
        assert_eq!(refused.errno(), Errno::EBUSY);
        assert!(refused.to_string().contains("longest free run has 8"));
    });
}
