use super::*;

/// A link with a queue, fed by grants: what is beyond the queue is lost.
fn settle(rate: u64, rtt: Duration, queue: u64, chance: fn(u64) -> bool, seconds: u64) -> (f64, f64) {
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, None);
    let step = Duration::from_nanos(1472 * 1_000_000_000 / rate);
    let (mut now, mut backlog) = (Instant::ZERO, 0.0f64);
    let (mut arrived, mut lost, mut count) = (0u64, 0u64, 0u64);
    let held = rate as f64 * rtt.as_secs_f64();
    let end = Instant::ZERO + Duration::from_secs(seconds);
    while now < end {
        // What is in flight beyond what the path holds stands in the queue.
        backlog = (window.octets() as f64 - held).max(-held);
        now += if backlog > 0.0 { step } else { step.mul_f64(held / (held + backlog).max(1.0)) };
        count += 1;
        let full = backlog > queue as f64 && count % 20 == 0;
        if full || chance(count) {
            lost += 1;
            window.on_loss(now, 1472);
        } else {
            arrived += 1472;
            window.on_round_trip(now, rtt + Duration::from_secs_f64(backlog.max(0.0) / rate as f64));
            window.on_arrival(now, 1472, true, now);
        }
    }
    assert!(backlog.is_finite());
    (arrived as f64 / seconds as f64 / rate as f64, lost as f64 * 1472.0 / arrived as f64)
}

#[test]
fn the_link_is_full_and_its_queue_is_not() {
    for (rate, rtt_us, queue) in [
        (125_000_000, 60, 64 << 10),
        (1_250_000_000, 20, 64 << 10),
        (1_250_000_000, 20, 1 << 20),
        (12_500_000, 1_000, 64 << 10),
    ] {
        let (used, lost) = settle(rate, Duration::from_micros(rtt_us), queue, |_| false, 2);
        assert!(used > 0.95, "{used} of {rate} B/s, {rtt_us} µs, {queue}");
        assert!(lost < 0.001, "{lost} of {rate} B/s, {rtt_us} µs, {queue}");
    }
}

/// The first grants' data comes late, and says nothing of the path.
#[test]
fn the_round_trip_is_not_long_at_once_where_the_sessions_know_a_short_one() {
    let (short, late) = (Duration::from_micros(50), Duration::from_millis(4));
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, Some(short));
    window.on_round_trip(Instant::ZERO, late);
    assert_eq!(window.rtt(), short * MOST_UNSETTLED);
    window.on_round_trip(Instant::ZERO + UNSETTLED, late);
    assert_eq!(window.rtt(), late, "if it goes on, the path is so");
    let mut unknown = InboundWindow::new(Instant::ZERO, 4 << 20, None);
    unknown.on_round_trip(Instant::ZERO, late);
    assert_eq!(unknown.rtt(), late);
}

/// Room that stood in senders who waited for their cores says little of the queue.
#[test]
fn a_room_that_overflows_a_shallow_buffer_is_not_small_however_much_lost_before() {
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, None);
    window.lossy = 8 * SHALLOW_QUEUE_BYTES;
    for (room, small) in [(2 * SHALLOW_QUEUE_BYTES, false), (FIRST_QUEUE_BYTES, true), (0, true)] {
        window.queue = room;
        assert_eq!(window.is_small(), small, "{room}");
    }
}

/// What comes right after an overrun is as fast as the link, and tells its rate.
#[test]
fn the_rate_is_known_as_soon_as_what_was_under_way_has_come() {
    let rtt = Duration::from_micros(5);
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, Some(rtt));
    let first = window.octets();
    let mut now = Instant::ZERO;
    for _ in 0..50 {
        now += Duration::from_nanos(118);
        window.on_arrival(now, 1472, false, now);
    }
    let link = 1472 * 1_000_000_000 / 118;
    assert!(window.rate().abs_diff(link) < link / 100, "{} of {link}", window.rate());
    assert_eq!(window.octets(), first + window.rate() * 5 / 1_000_000);
}

/// 16 senders' windows at 25 Gb/s come in a quarter of a round trip, and are marked: that is not their link's rate.
#[test]
fn a_rate_that_was_too_low_is_found_in_a_few_dozen_round_trips() {
    let (link, rtt, packets) = (3_000_000_000u64, Duration::from_micros(200), 32);
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, Some(rtt));
    let mut now = Instant::ZERO;
    let path = link / 5_000;
    let mut come = path / 4;
    let mut round_trips = 0;
    while window.octets() < path {
        for _ in 0..packets {
            now += rtt / packets;
            window.on_arrival(now, come / u64::from(packets), round_trips > 0, now);
        }
        window.on_round_trip(now, rtt);
        come = window.octets().min(path);
        round_trips += 1;
    }
    assert!(round_trips < 40, "{round_trips} round trips");
}

#[test]
fn a_rate_that_was_too_high_lasts_until_something_is_lost() {
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, None);
    let mut now = Instant::ZERO;
    // A process that was late reads what had waited.
    for _ in 0..200 {
        now += Duration::from_nanos(1000);
        window.on_arrival(now, 1472, true, now);
    }
    assert!(window.rate() > 1_000_000_000);
    for packet in 0..2_000 {
        now += Duration::from_micros(12);
        window.on_arrival(now, 1472, true, now);
        if packet == 500 {
            window.on_loss(now, 1472);
        }
    }
    let link = 1472 * 1_000_000 / 12;
    assert!(window.rate().abs_diff(link) < link / 50, "{} of {link}", window.rate());
}

#[test]
fn a_long_path_is_filled_within_a_few_dozen_round_trips() {
    let (used, _) = settle(125_000_000, Duration::from_millis(20), 1 << 20, |_| false, 4);
    assert!(used > 0.85, "{used}, the start included");
}

/// A window that has found its room, and then loses something each `pause`; its room before and in the end.
fn room_after_losses(buffer: u64, pause: Duration, losses: u32) -> (u64, u64) {
    let mut window = InboundWindow::new(Instant::ZERO, buffer, None);
    let mut now = Instant::ZERO;
    let mut run = |window: &mut InboundWindow, time: Duration| {
        let end = now + time;
        while now < end {
            now += Duration::from_micros(12);
            window.on_round_trip(now, Duration::from_micros(60));
            window.on_arrival(now, 1472, true, now);
        }
        now
    };
    run(&mut window, Duration::from_secs(1));
    let before = window.queue();
    for _ in 0..losses {
        let now = run(&mut window, pause);
        window.on_loss(now, 1472);
    }
    (before, window.queue())
}

#[test]
fn a_loss_now_and_then_does_not_narrow_a_room_that_was_enough() {
    let (before, after) = room_after_losses(64 << 10, Duration::from_millis(400), 20);
    assert_eq!(before, after);
    let (before, after) = room_after_losses(64 << 10, Duration::from_millis(40), 11);
    assert!(after < before / 4, "{after} of {before}: losses that go on are the room's");
}

#[test]
fn losses_that_go_on_in_a_small_room_are_not_the_rooms() {
    let (before, after) = room_after_losses(64 << 10, Duration::from_millis(40), 60);
    assert_eq!(before, after);
    let (before, after) = room_after_losses(4 << 20, Duration::from_millis(40), 120);
    assert!(
        before > 1 << 20 && after == 2 * FIRST_QUEUE_BYTES,
        "{after} of {before}: what would overflow is hidden"
    );
}

#[test]
fn chance_loss_does_not_close_the_window() {
    let (used, _) = settle(125_000_000, Duration::from_micros(100), 64 << 10, |n| n % 50 == 0, 2);
    assert!(used > 0.90, "{used} with 2 % of chance loss");
}

/// Nothing is lost until the socket's buffer overflows: what is granted beyond what this process reads waits there.
#[test]
fn who_cannot_read_faster_lets_no_more_wait_than_bridges_a_lateness() {
    let (used, lost) = settle(125_000_000, Duration::from_micros(60), 1 << 30, |_| false, 2);
    assert!(used > 0.99 && lost == 0.0, "{used}, {lost}");
    let mut window = InboundWindow::new(Instant::ZERO, 8 << 20, None);
    let mut now = Instant::ZERO;
    for _ in 0..200_000 {
        now += Duration::from_micros(12);
        window.on_round_trip(now, Duration::from_nanos(window.octets() * 1_000_000_000 / 122_000_000));
        window.on_arrival(now, 1472, true, now);
    }
    let most = octets_in(122_000_000, 2 * LONGEST_QUEUE);
    assert!(u128::from(window.queue()) < most, "{} of {most}", window.queue());
}

/// A socket's buffer that has overflowed brings losses for as long as it is read.
#[test]
fn what_was_granted_before_the_room_shrank_does_not_shrink_it_again() {
    let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, None);
    let (ms, mut now) = (Duration::from_millis(1), Instant::ZERO + MEMORY);
    (window.queue, window.datagram) = (1 << 20, 1472);
    for _ in 0..100 {
        window.on_round_trip(now, 40 * ms);
    }
    window.on_round_trip(now, ms / 20);
    for _ in 0..30 {
        now += ms;
        window.on_loss(now, 1472);
    }
    assert_eq!(window.queue(), (1 << 20) * KEPT_ON_LOSS / 16);
    window.on_loss(now + 40 * ms, 1472);
    assert_eq!(window.queue(), (1 << 20) * KEPT_ON_LOSS / 16 * KEPT_ON_LOSS / 16);
}

/// It reads nothing for a while now and then, or each time, and what has come meanwhile at once.
#[test]
fn how_fast_is_read_what_waited_for_this_process_is_no_rate() {
    let (gap, us) = (Duration::from_micros(12), Duration::from_micros(1));
    let link = 1472 * 1_000_000 / 12;
    for (away, between) in [(5_000 * us, 115_000 * us), (50_000 * us, Duration::ZERO)] {
        let mut window = InboundWindow::new(Instant::ZERO, 4 << 20, None);
        let mut now = Instant::ZERO;
        for _ in 0..20 {
            let (since, packets) = (now, away.as_nanos() / gap.as_nanos());
            now += away;
            for _ in 0..packets {
                now += us / 2;
                window.on_arrival(now, 1472, true, since);
            }
            let until = now + between;
            while now < until {
                now += gap;
                window.on_round_trip(now, 60 * us);
                window.on_arrival(now, 1472, true, now);
            }
            assert!(window.rate() < link + link / 20, "{} of {link}", window.rate());
        }
        assert!(window.rate() > link - link / 20, "{} of {link}", window.rate());
    }
}
