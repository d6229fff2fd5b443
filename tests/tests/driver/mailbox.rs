//! Questions to firmware, in both mailboxes (specification 01 §6, §7).

use std::time::Duration;

use axon::Error;
use axon::ports::telemetry::EventKind;
use axon::ports::telemetry::counters::MailboxCommand;
use axon_model::Product;
use axon_platform::Errno;
use axon_ports::CoreMap;
use embassy_futures::join::join;
use embassy_futures::select::select;

use axon_tests::bench::{Bench, Setups, every, later, v2};

/// Writes into MiscRAM since the trace was cleared.
fn writes(bench: &Bench) -> Vec<(u64, u32)> {
    let trace = bench.report().register_trace;
    let inside =
        trace.iter().filter_map(|r| Some((r.offset.checked_sub(bench.misc_ram())?, r.value)));
    inside.filter(|(offset, _)| *offset < 0x1000).collect()
}

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.err().expect("refused").errno()
}

/// Errors, requests and timeouts that the driver has counted for a command.
fn counted(bench: &Bench, command: MailboxCommand) -> (u64, u64, u64) {
    let mailbox = &records(bench).counters.mailbox;
    (mailbox.errors.get(), mailbox.requests(command).get(), mailbox.timeouts(command).get())
}

fn records(bench: &Bench) -> std::sync::Arc<axon::ports::telemetry::DeviceRecords> {
    bench.device.records().clone()
}

/// Answers of the model, but for the one to the question that V3 asks after its first reset.
fn answers(bench: &Bench) -> u64 {
    bench.report().mailbox_answers - counted(bench, MailboxCommand::GetData).1
}

#[test]
fn dev_e24_a_profile_in_the_register_file() {
    // Without a reset nothing was asked before.
    later().with(|setup| setup.config.no_reset = true).run(async |bench| {
        bench.control("trace registers on");
        bench.client.set_power_profile(1).await.unwrap();
        let expected = [
            (0x100, 0),
            (0x104, 1),
            (0x1f0, 0x0010_0302),
            (0x1f4, 0x847a_a309),
            (0x1f8, 0),
            (0x1fc, 0),
            (0xf0, 1),
            (0x800, 1),
        ];
        assert_eq!(writes(&bench), expected);
        assert_eq!(bench.device.power_profile(), 1);
        let profiles = bench.device.power_profiles(0).await.unwrap();
        assert_eq!((profiles.count, profiles.bitmap[0]), (3, 0b111));
        assert_eq!(bench.device.power_profiles(5).await.unwrap().bitmap, [0; 32]);
        bench.client.throttle_notifications(true).await.unwrap();
    });
}

#[test]
fn v2_takes_every_profile_and_does_nothing() {
    v2().run(async |bench| {
        bench.control("trace registers on");
        bench.client.set_power_profile(7).await.unwrap();
        assert_eq!(writes(&bench), []);
        assert_eq!(bench.device.power_profile(), 0);
    });
}

#[test]
fn dev_e25_firmware_reads_registers() {
    every().run(async |bench| {
        let addresses = [bench.firmware_word(0), bench.firmware_word(0x24)];
        let values = bench.device.hardware_counters(&addresses).await.unwrap();
        assert_eq!(values, [7, 0], "API version and routing id");
        assert_eq!(bench.device.hardware_counters(&[]).await.unwrap(), [0; 0]);
        assert_eq!(answers(&bench), 1, "nothing is asked for nothing");
    });
}

#[test]
fn nq_e32_nq_d16_at_most_8190_registers_and_only_registers() {
    every().run(async |bench| {
        let word = bench.firmware_word(0);
        let many = vec![word; 8190];
        assert_eq!(bench.device.hardware_counters(&many).await.unwrap(), vec![7; 8190]);
        let more = vec![word; 8191];
        assert_eq!(errno(bench.device.hardware_counters(&more).await), Errno::EINVAL);
        let outside = if bench.is_v2() {
            [0, 0xfff_bfff_fffc, 0x1000_0000_0000, 0xfff_f0fa_0002, 0x80_06c8_4000]
        } else {
            [0, 0x80_2000_0000, 0x7f_ffff_fffc, 0x80_0000_0002, 0x2000_0000_0000]
        };
        for address in outside {
            let foreign = [word, address];
            assert_eq!(errno(bench.device.hardware_counters(&foreign).await), Errno::EINVAL);
        }
        assert_eq!(answers(&bench), 1);
    });
}

#[test]
fn dev_e26_sequence_numbers_leave_0_out() {
    every().run(async |bench| {
        for _ in 0..300 {
            bench.client.post_metric(b"abc").await.unwrap();
        }
        assert_eq!(bench.report().posts.len(), 300, "the model checks every sum");
        assert_eq!(counted(&bench, MailboxCommand::PostMetric), (0, 300, 0));
    });
}

#[test]
fn dev_e27_old_or_silent_firmware_is_not_asked() {
    later().with(|setup| setup.function.api_version = 6).run(async |bench| {
        bench.control("trace registers on");
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::EOPNOTSUPP);
        assert_eq!(writes(&bench), []);
    });
    later().run(async |bench| {
        bench.control("trace registers on");
        bench.control("fault dead-reads");
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::EIO);
        bench.control("fault clear");
        assert_eq!(writes(&bench), []);
    });
}

#[test]
fn dev_e28_refused_unknown_silent() {
    later().run(async |bench| {
        let command = MailboxCommand::SetPowerProfile;
        bench.control("fault mailbox-fail=3");
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::EIO);
        assert_eq!((counted(&bench, command), answers(&bench)), ((3, 1, 0), 3));
        bench.control("fault mailbox-unknown=1");
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::EIO);
        assert_eq!((counted(&bench, command), answers(&bench)), ((4, 2, 0), 4));
        bench.control("fault mailbox-silent=3");
        let start = bench.now();
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::ETIMEDOUT);
        assert_eq!(bench.now().since(start).as_secs(), 270);
        assert_eq!(counted(&bench, command), (4, 3, 1));
        assert_eq!(bench.device.power_profile(), 0, "nothing was set");
        assert_eq!(records(&bench).events.count(EventKind::MailboxError), 4);
    });
}

#[test]
fn dev_e29_the_answer_to_another_question_is_none() {
    later().run(async |bench| {
        bench.control("fault mailbox-sequence=1");
        bench.client.set_power_profile(1).await.unwrap();
        assert_eq!(answers(&bench), 2);
        bench.control("fault mailbox-sequence=1");
        bench.client.post_metric(b"abc").await.unwrap();
        assert_eq!(answers(&bench), 4, "also in host memory");
    });
}

#[test]
fn dev_e30_damaged_answers_and_sizes_of_posts() {
    later().run(async |bench| {
        bench.control("fault bad-crc=1");
        bench.client.set_power_profile(1).await.unwrap();
        assert_eq!(answers(&bench), 2, "a wrong sum is asked again");
        bench.control("fault bad-crc=3");
        assert_eq!(errno(bench.client.set_power_profile(2).await), Errno::EIO);
        assert_eq!(bench.device.power_profile(), 1);
        assert_eq!(records(&bench).counters.mailbox.unverified.get(), 0);
    });
    every().run(async |bench| {
        assert_eq!(errno(bench.client.post_metric(&[7; 129]).await), Errno::E2BIG);
        assert_eq!(errno(bench.client.post_metric(&[]).await), Errno::EINVAL);
        bench.client.post_metric(&[7; 128]).await.unwrap();
        bench.control("trace registers on");
        bench.client.post_metric(&[1, 2, 3, 4, 5]).await.unwrap();
        let start: Vec<_> = writes(&bench).into_iter().take(2).collect();
        assert_eq!(start, [(0x100, 0x0403_0201), (0x104, 5)]);
        let posts: Vec<_> = bench.report().posts.into_iter().map(|post| post.bytes).collect();
        assert_eq!(posts, [vec![7; 128], vec![1, 2, 3, 4, 5]]);
    });
}

#[test]
fn dev_e31_an_answer_longer_than_its_room_is_not_asked_for_again() {
    every().run(async |bench| {
        bench.control("fault mailbox-oversize=1");
        assert_eq!(errno(bench.client.post_metric(b"abc").await), Errno::EIO);
        assert_eq!(answers(&bench), 1);
        bench.client.post_metric(b"abc").await.unwrap();
    });
}

#[test]
fn dev_e32_the_two_mailboxes_alternate() {
    later().run(async |bench| {
        for profile in 1..4 {
            bench.client.set_power_profile(profile).await.unwrap();
            bench.client.post_metric(b"abc").await.unwrap();
        }
        assert_eq!(answers(&bench), 6);
    });
}

#[test]
fn dev_e40_a_request_in_the_middle_of_a_reset_waits_for_its_end() {
    every().run(async |bench| {
        let reset = bench.client.reset(CoreMap::DEVICE).unwrap();
        let (reset, post) = join(reset, bench.client.post_metric(b"abc")).await;
        reset.unwrap();
        post.unwrap();
        assert_eq!(bench.report().posts.len(), 1);
        assert_eq!(bench.report().device_resets, 2, "one for each that was asked for");
    });
}

#[test]
fn dev_d26_a_request_behind_a_lost_trigger_does_not_start_the_reset() {
    every().run(async |bench| {
        bench.control("fault lost-trigger=1");
        let start = bench.now();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        let post = async {
            bench.pause(Duration::from_secs(1)).await;
            bench.client.post_metric(b"abc").await
        };
        let (reset, post) = join(reset, post).await;
        reset.unwrap();
        post.unwrap();
        assert!(bench.now().since(start) > Duration::from_secs(10), "by its own second trigger");
        assert_eq!(answers(&bench), 1);
    });
}

#[test]
fn a_reset_does_not_wait_for_firmware_that_is_silent() {
    later().run(async |bench| {
        bench.control("fault mailbox-silent=1");
        let start = bench.now();
        let profile = bench.client.set_power_profile(1);
        let reset = async {
            bench.pause(Duration::from_millis(10)).await;
            bench.client.reset(CoreMap::DEVICE).unwrap().await
        };
        let (profile, reset) = join(profile, reset).await;
        reset.unwrap();
        profile.unwrap();
        let took = bench.now().since(start);
        assert!(took < Duration::from_secs(2), "{took:?}: not 90 s");
    });
}

#[test]
fn dev_e48_what_is_given_up_leaves_nothing_behind() {
    later().run(async |bench| {
        bench.control("fault mailbox-silent=3");
        assert_eq!(errno(bench.client.set_power_profile(1).await), Errno::ETIMEDOUT);
        assert_eq!(bench.device.read32(bench.misc_ram() + 0xf0).unwrap(), 0, "ACK");
        let before = answers(&bench);
        bench.device.hardware_counters(&[bench.firmware_word(0)]).await.unwrap();
        assert_eq!(answers(&bench), before + 1, "with its first attempt");
    });
}

#[test]
fn a_request_dropped_half_way_is_waited_out() {
    later().run(async |bench| {
        bench.control("fault mailbox-delay=5ms");
        let start = bench.now();
        {
            let asked = std::pin::pin!(bench.client.set_power_profile(1));
            let gone = std::pin::pin!(bench.pause(Duration::from_millis(2)));
            select(asked, gone).await;
        }
        bench.control("fault clear");
        bench.client.post_metric(b"abc").await.unwrap();
        let took = bench.now().since(start);
        assert!(took >= Duration::from_millis(5) && took < Duration::from_millis(20), "{took:?}");
        assert_eq!(bench.report().posts.len(), 1, "with its first attempt");
        assert_eq!(bench.device.read32(bench.misc_ram() + 0xf0).unwrap(), 0, "ACK");
    });
}

#[test]
fn requests_take_turns_in_order() {
    every().run(async |bench| {
        bench.control("fault mailbox-delay=3ms");
        let posts = [b"a", b"b", b"c", b"d"].map(|text| bench.client.post_metric(text));
        let [a, b, c, d] = posts;
        let (ab, cd) = join(join(a, b), join(c, d)).await;
        assert_eq!((ab, cd), ((Ok(()), Ok(())), (Ok(()), Ok(()))));
        let posts: Vec<_> = bench.report().posts.into_iter().map(|post| post.bytes).collect();
        assert_eq!(posts.concat(), b"abcd");
    });
}

#[test]
fn nq_e33_firmware_that_refuses_to_read_registers() {
    every().run(async |bench| {
        bench.control("fault mailbox-unknown=1");
        assert_eq!(
            errno(bench.device.hardware_counters(&[bench.firmware_word(0)]).await),
            Errno::EIO
        );
        assert_eq!(counted(&bench, MailboxCommand::Read), (1, 1, 0));
    });
}

#[test]
fn a_device_that_is_gone_is_seen_by_the_first_attempt() {
    every().run(async |bench| {
        bench.control("fault all-ones");
        if !bench.is_v2() {
            assert!(matches!(bench.client.set_power_profile(1).await, Err(Error::DeviceGone)));
        }
        assert!(matches!(bench.client.post_metric(b"abc").await, Err(Error::DeviceGone)));
    });
}

#[test]
fn v3_asks_for_hbm_7200_once_and_no_reset_fails_for_it() {
    let knows = |setups: Setups, wanted: bool, questions: u64| {
        setups.run(async |bench| {
            let asked = |bench: &Bench| counted(bench, MailboxCommand::GetData).1;
            assert_eq!((bench.device.hbm_7200(), asked(&bench)), (Some(wanted), questions));
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            assert_eq!((bench.device.hbm_7200(), asked(&bench)), (Some(wanted), questions));
            bench.control("fault reset-stuck times=1");
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap_err();
            assert_eq!(bench.device.hbm_7200(), Some(false), "a failed reset says no");
        });
    };
    let v3 = || later().only(Product::Trn2);
    let offered = |setups: Setups| setups.with(|setup| setup.function.hbm_7200 = true);
    knows(offered(v3()), true, 1);
    knows(v3(), false, 1);
    for fault in ["mailbox-fail", "mailbox-unknown", "mailbox-silent", "bad-crc"] {
        knows(offered(v3()).fault(fault), false, 1);
    }
    // Old firmware is not asked; V2 and V4 have it never, whatever firmware would say.
    knows(offered(v3()).with(|setup| setup.function.api_version = 6), false, 0);
    knows(offered(v2()), false, 0);
    knows(offered(later().only(Product::Trn3)), false, 0);
}

#[test]
fn dev_e45_a_register_read_that_finds_nobody_says_so() {
    every().run(async |bench| {
        let word = bench.misc_ram();
        bench.control("stick 0x40 0xffffffff");
        assert_eq!(bench.device.read32(word + 0x40).unwrap(), u32::MAX, "one word alone is data");
        bench.control("fault all-ones");
        assert_eq!(bench.device.read32(0).unwrap(), u32::MAX, "elsewhere too");
        assert!(matches!(bench.device.read32(word), Err(Error::DeviceGone)));
        let reads = bench.report().register_reads;
        assert_eq!(errno(bench.device.read32(0)), Errno::EIO);
        assert_eq!(bench.report().register_reads, reads);
    });
}
