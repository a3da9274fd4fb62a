//! What is said of the image that a volume is protected by.

use crate::served::Served;
use crate::server::Server;
use crate::watched::EventKind;
use bimetal_driver::Driver;
use bimetal_engine::options::Level;
use bimetal_protect::{Plan, Progress, Standing};
use serde::{Deserialize, Serialize};

/// The image of a protected volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionDoc {
    /// `base` (the fast device is being copied, and there is no image yet), `image`, `off`, or `stand-in` (there is none: its copy
    /// of the fast device has that one's place); empty where nobody serves the volume.
    pub state: String,
    /// The oldest that an image is to be.
    pub seconds: u32,
    /// Clients wait rather than that it is older.
    pub strict: bool,
    /// How old it is, where something has been written since; null without an image.
    pub exposed_seconds: Option<u64>,
    /// Bytes of the fast device that the image lacks.
    pub exposed_bytes: u64,
    /// When the image was frozen; null without one.
    pub image_unix_s: Option<u64>,
    /// Why there is none; null where there is or will be.
    pub why: Option<String>,
    /// In so many seconds a new one is begun; null where there is one, one is being made, or none is begun until the volume is opened
    /// again.
    #[serde(default)]
    pub retry_seconds: Option<u64>,
}

impl ProtectionDoc {
    /// How the image stands of the volume that a driver has; none where it is not protected.
    pub fn of(driver: &Driver) -> Option<ProtectionDoc> {
        let (plan, progress) = driver.protection_plan().zip(driver.protection())?;
        Some(ProtectionDoc::new(plan, &progress))
    }

    /// The document of how it stands.
    fn new(plan: &Plan, progress: &Progress) -> ProtectionDoc {
        let (state, why, again_ms) = match &progress.standing {
            Standing::Base => ("base", None, None),
            Standing::Image => ("image", None, None),
            Standing::Off { why, again_ms } => ("off", Some(why.clone()), *again_ms),
            Standing::StandIn => ("stand-in", None, None),
        };
        ProtectionDoc {
            state: state.to_owned(),
            seconds: plan.seconds,
            strict: plan.strict,
            exposed_seconds: progress.image.map(|_| progress.exposed_ms / 1000),
            exposed_bytes: progress.exposed_bytes,
            image_unix_s: progress.image.map(|image| image.frozen_unix_ms / 1000),
            why,
            retry_seconds: again_ms.map(|ms| ms / 1000),
        }
    }
}

impl<V: Served> Server<V> {
    /// Says it once where the volume is no longer protected, and when it is again, and each time that an image is given up for a new one.
    pub(crate) fn look_after_protection(&mut self) {
        let Some(progress) = self.driver.protection() else { return };
        let had_image = std::mem::replace(&mut self.has_image, progress.image.is_some());
        if had_image && progress.standing == Standing::Base {
            let what = "the image of the volume was given up, as more was written than there is room for beside it; until a \
                        new one is made, the volume is not protected";
            self.say_happened(EventKind::Notice, Level::Warning, what.to_owned());
        }
        if progress.image.is_some() && std::mem::take(&mut self.said_unprotected) {
            self.say_happened(
                EventKind::Notice,
                Level::Info,
                "there is an image of the volume again".to_owned(),
            );
        }
        let Standing::Off { why, again_ms } = progress.standing else { return };
        if !std::mem::replace(&mut self.said_unprotected, true) {
            let until = match again_ms {
                Some(ms) => format!("a new one is begun in {} s", ms / 1000),
                None => "none is begun before it is opened again".to_owned(),
            };
            let what = format!("there is no image of the volume any more, and {until}: {why}");
            self.say_happened(EventKind::Damage, Level::Error, what);
        }
    }
}
