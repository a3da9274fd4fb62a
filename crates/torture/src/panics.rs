//! Turns a panic of the engine into a violation with its place, without noise on standard error.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread tortures; then holds the last panic.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

fn install() {
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let ours = CAUGHT.with_borrow_mut(|caught| match caught {
                Some(text) => {
                    *text = info.to_string().replace('\n', " ");
                    true
                }
                None => false,
            });
            if !ours {
                usual(info);
            }
        }));
    });
}

/// Calls `f`; a panic in it becomes an error.
pub fn caught(f: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    install();
    CAUGHT.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    let text = CAUGHT.take().unwrap_or_default();
    result.unwrap_or(Err(text))
}
