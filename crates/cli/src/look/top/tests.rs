//! Screens of several sizes, of volumes that are made up.

use super::once::text;
use super::screen::{Sort, View, draw};
use super::wants_end;
use super::watch::Watched;
use bimetal_serve::StatusDoc;
use bimetal_serve::ask::MoveDoc;
use bimetal_serve::map::{CellDoc, KeptBytes};
use bimetal_serve::why::DecisionDoc;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Color;
use std::time::{Duration, Instant};

fn status(second: u64) -> StatusDoc {
    let tier = |name: &str, times: u64| {
        let doc = serde_json::json!({
            "name": name, "device": format!("/dev/{name}"), "size_bytes": 100u64 << 30, "used_bytes": (50 * times) << 30,
            "read_share": 0, "write_share": 0, "read_bytes": (300 << 20) * second / times,
            "written_bytes": (100 << 20) * second, "device_written_bytes": 0, "flushes": 0,
            "load": {
                "reads": 3000 * second / times, "writes": 100 * second, "read_bytes": (300 << 20) * second / times,
                "written_bytes": (100 << 20) * second, "in_flight": 3, "errors": 0, "busy_us": 950_000 * second / times,
                "wait_us": 2_000_000 * second
            }
        });
        serde_json::from_value(doc).expect("a tier")
    };
    StatusDoc {
        volume: "films".into(),
        state: "open".into(),
        size_bytes: 200 << 30,
        chunk_bytes: 128 << 10,
        generation: 3,
        unix_ms: 1_000_000 + 1000 * second,
        clients: 2,
        promoted_chunks: 16 * second,
        tiers: vec![tier("fast", 1), tier("slow", 2)],
        ..StatusDoc::default()
    }
}

fn volume(name: &str) -> Watched {
    let mut volume = Watched::new(name.into(), format!("/run/{name}.control").into(), None);
    let begun = Instant::now();
    (0..70)
        .for_each(|second| volume.looks.add(begun + Duration::from_secs(second), status(second), [None; 2]));
    volume.silent = None;
    let decision = DecisionDoc {
        unix_s: 1050,
        to: "fast".into(),
        reason: "hot".into(),
        heat: 9,
        outcome: "moved".into(),
    };
    volume.decisions = vec![MoveDoc { offset: 5 << 30, decision }; 20];
    let kept = KeptBytes { slow_bytes: 1 << 30, ..KeptBytes::default() };
    let cell = |nth: u64| CellDoc {
        offset: nth << 30,
        kept,
        hottest: 200 - nth as u32,
        hottest_offset: (nth << 30) + 4096,
        hot_slow_bytes: 128 << 10,
    };
    volume.hot = (0..60).map(cell).collect();
    volume
}

fn view(names: &[&str]) -> View {
    let volumes = names.iter().map(|name| volume(name)).collect();
    View { volumes, keys: true, ..View::default() }
}

#[test]
fn all_that_is_asked_for_is_on_a_small_screen() {
    let screen = text(&view(&["films"]), 80, 24);
    for words in [
        "films: open, 200 GiB, 2 clients",
        "films fast            300M      100M    3000     100",
        "95%",
        "fast  [###############...............]  50% of 100 GiB",
        "slow  [##############################] 100%",
        "zone ",
        "5 min    hour     day    ever",
        "  reads                67%       -",
        "moves: up 2.0M/s, down 0/s",
        "in the last 60 s: 20 up (touched often)",
        "chunk at 5 GiB",
        "> 4 KiB",
        "q quit",
    ] {
        assert!(screen.contains(words), "{words:?} is not in\n{screen}");
    }
    assert_eq!(screen.lines().count(), 24);
    assert!(screen.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_large_screen_tells_more_and_a_tiny_one_does_no_harm() {
    let view = view(&["films", "photos", "music"]);
    let (small, large) = (text(&view, 80, 24), text(&view, 200, 50));
    let hot = |screen: &str| screen.lines().filter(|line| line.contains("128 KiB")).count();
    assert!(hot(&large) > hot(&small) && hot(&small) >= 1, "{small}\n{large}");
    assert!(large.contains("last minute") && large.contains('█'), "{large}");
    for (width, height) in [(0, 0), (1, 1), (20, 3), (80, 1), (79, 23), (500, 200)] {
        text(&view, width, height);
    }
}

#[test]
fn a_volume_that_is_not_served_is_told_as_such() {
    let mut view = view(&["films"]);
    view.volumes[0].silent = Some("nobody serves it".into());
    let screen = text(&view, 80, 24);
    assert!(screen.contains("films: nobody serves it; it is asked again each second"), "{screen}");
    assert!(text(&View::default(), 80, 24).contains("this user serves no volume"));
}

#[test]
fn without_colour_there_is_none() {
    let area = Rect { x: 0, y: 0, width: 120, height: 40 };
    let colours = |colour| {
        let mut buffer = Buffer::empty(area);
        draw(area, &mut buffer, &View { colour, ..view(&["films"]) });
        buffer.content.iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset)).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 0);
}

#[test]
fn keys_do_what_is_said() {
    let mut view = view(&["films", "photos"]);
    let mut press = |code| wants_end(KeyEvent::new(code, KeyModifiers::NONE), &mut view);
    assert!(!press(KeyCode::Down) && !press(KeyCode::Down) && !press(KeyCode::Up));
    assert!(!press(KeyCode::Char('s')));
    assert!(!press(KeyCode::Enter));
    assert!(!press(KeyCode::Esc), "the first one goes back");
    assert!(press(KeyCode::Esc) && press(KeyCode::Char('q')));
    assert_eq!((view.picked, view.sort, view.chosen), (1, Sort::Busy, 0));
    wants_end(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE), &mut view);
    assert_eq!((view.chosen, view.picked), (1, 0));
    assert!(wants_end(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut view));
}

#[test]
fn moves_that_are_paused_are_told_as_such() {
    let mut view = view(&["films"]);
    let mut paused = status(71);
    paused.moves.paused = true;
    view.volumes[0].looks.add(Instant::now() + Duration::from_secs(71), paused, [None; 2]);
    let screen = text(&view, 80, 24);
    assert!(screen.contains("PAUSED") && screen.contains("p resume"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80));
    // There is nobody to be asked behind this socket: that is said, and nothing else happens.
    wants_end(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE), &mut view);
    assert!(text(&view, 80, 24).contains("cannot be paused: nobody serves it"));
}
