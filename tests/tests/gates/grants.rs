//! Rights of single clients, of the info lane, and of the host.

use axon::calls::{CALLS, Call};
use axon::gates::{Caller, Lane, check};
use axon::{Device, Driver, DriverConfig, Error, Grant, Grants, HostConfig, Mode, OpenOptions};
use axon_hosted::Machine;
use axon_platform::Errno;

use axon_tests::bench::trn1;

/// A host whose configuration has these rights, and its device.
fn on_host(grants: Grants, test: impl AsyncFnOnce(Driver<Machine>, Device<Machine>)) {
    let machine = trn1().machine();
    let host = HostConfig { grants, ..HostConfig::default() };
    let driver =
        Driver::with_config(machine.clone(), DriverConfig { host, ..DriverConfig::default() });
    let ended = machine.run(async {
        driver.settled().await;
        let device = driver.device(0).unwrap();
        test(driver.clone(), device).await;
        driver.shut_down().await;
    });
    machine.shut_down();
    ended.unwrap();
}

fn with(grants: Grants) -> OpenOptions {
    OpenOptions { grants, ..OpenOptions::default() }
}

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.err().unwrap().errno()
}

#[test]
fn every_call_on_the_info_lane() {
    on_host(Grants::ALL, async |_, device| {
        for grants in [Grants::ALL, Grants::DEVICE] {
            let info = device.open_info_with(with(grants)).unwrap();
            let caller = Caller { lane: Lane::Info, attached: false, grants };
            for &call in CALLS {
                let expected = check(call.command(), &caller).map_err(|refused| refused.errno());
                let seen = info.admit(call).map_err(|refused| refused.errno());
                assert_eq!(seen, expected, "{call:?} {grants:?}");
            }
        }
        // What the lane has: claims, the pod, and looking.
        let info = device.open_info().unwrap();
        assert_eq!(errno(info.admit(Call::Alloc)), Errno::EINVAL);
        drop(info.claim(1, 0..=0).await.unwrap());
        info.pod_control().map(drop).unwrap();
        assert_eq!((device.open_count(), device.clients().len()), (0, 0));
    });
}

#[test]
fn without_the_grant_of_the_device_nobody_gets_in_on_either_lane() {
    on_host(Grants::ALL, async |_, device| {
        let nothing = with(Grants::ALL.without(Grant::Device));
        assert_eq!(errno(device.open_with(nothing).await), Errno::EACCES);
        assert_eq!(errno(device.open_info_with(nothing)), Errno::EACCES);
        assert_eq!((device.open_count(), device.clients().len()), (0, 0));
    });
    on_host(Grants::NONE, async |_, device| {
        assert_eq!(errno(device.open().await), Errno::EACCES);
        assert_eq!(errno(device.open_info()), Errno::EACCES);
    });
}

#[test]
fn st_d51_a_second_client_may_be_given_less_than_the_first() {
    on_host(Grants::ALL, async |driver, device| {
        let first = device.open().await.unwrap();
        let second = device.open_with(with(Grants::DEVICE)).await.unwrap();
        first.pod_control().map(drop).unwrap();
        first.check_grant(Grant::RawDram).unwrap();
        let refused = second.pod_control().err().unwrap();
        assert_eq!(refused.errno(), Errno::EACCES);
        assert_eq!(
            refused.to_string(),
            "the configuration does not grant PodControl to this client"
        );
        assert_eq!(errno(second.check_grant(Grant::RawDram)), Errno::EPERM);
        let info = device.open_info_with(with(Grants::DEVICE)).unwrap();
        assert_eq!(errno(info.pod_control()), Errno::EACCES);
        // What it was not refused works.
        second.alloc_host(axon::HostAlloc::new(4096)).await.unwrap();
        // The driver's own way in has the rights of the host.
        let own = driver.pod_set_mode(Mode::X1).await;
        assert!(own.err().is_none_or(|refused| refused.errno() != Errno::EACCES));
    });
}

#[test]
fn nobody_has_what_the_host_has_not() {
    on_host(Grants::DEVICE, async |driver, device| {
        let client = device.open_with(with(Grants::ALL)).await.unwrap();
        assert_eq!(errno(client.pod_control()), Errno::EACCES);
        assert_eq!(errno(driver.pod_set_mode(Mode::X1).await), Errno::EACCES);
        assert_eq!(errno(driver.pod_elect(std::time::Duration::ZERO).await), Errno::EACCES);
        assert_eq!(errno(driver.pod_cancel().await), Errno::EACCES);
    });
}

#[test]
fn a_client_that_is_attached_keeps_the_rights_it_came_with() {
    on_host(Grants::ALL, async |_, device| {
        let tenant = device.open_with(with(Grants::DEVICE)).await.unwrap();
        let again = OpenOptions { client: Some(tenant.id()), grants: Grants::ALL };
        let again = device.open_with(again).await.unwrap();
        assert_eq!(errno(again.pod_control()), Errno::EACCES);
        let id = tenant.id();
        drop(tenant);
        again.close().await;
        let anew = OpenOptions { client: Some(id), grants: Grants::ALL };
        device.open_with(anew).await.unwrap().pod_control().map(drop).unwrap();
    });
}
