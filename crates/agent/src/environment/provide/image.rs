//! Images: found, pulled, loaded or built by the engine, which a process of its own drives.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use neap_protocol::{Environment, Exit, FailureClass};
use neap_sandbox::{Launch, Outcome, boot_ms};

use super::super::cache::Cache;
use super::super::engine::{Engine, with_tag};
use super::super::installing;
use super::super::limits::{CONTEXT_BYTES_MAX, CONTEXT_ENTRIES_MAX, IMAGE_ABSENT_MS};
use super::super::order::{Answer, EngineFiles, ImageOrder, Order, Step, driver_variables};
use super::super::packages;
use super::{Ground, Orders, Provided, built, environment_failed, system_failed};
use crate::attempt::{Running, Stage};
use crate::data;
use crate::prepare::Layout;
use crate::session::prepare_failed;
use crate::tree::{Entry, Tree};

/// The build context, in the attempt's folder where the job does not see it.
const CONTEXT: &str = "context";

/// Why an image is not there.
pub(super) enum NoImage {
    /// It can neither be found nor pulled.
    Absent(String),
    Exit(Exit),
}

impl From<Exit> for NoImage {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

/// An image that is to be there.
struct Wanted {
    reference: String,
    /// By which all who want it at once know each other.
    key: String,
    /// How it comes to be there.
    order: ImageOrder,
}

impl Wanted {
    /// What is made under a name of its own.
    fn made(name: &str, key: String, order: impl FnOnce(String) -> ImageOrder) -> Self {
        let reference = format!("{name}:{key}");
        Self { order: order(reference.clone()), reference, key }
    }
}

/// An image that is there.
struct Image {
    reference: String,
    id: String,
    /// This attempt had it made.
    built: bool,
}

impl Running<'_> {
    /// The image of the environment, made where it is not there yet.
    pub(super) async fn bring_image(
        &mut self,
        engine: &Engine,
        layout: &mut Layout,
        orders: &mut Orders,
    ) -> Result<Provided, NoImage> {
        let image = match self.spec.environment.clone() {
            Environment::Image { image, packages } => {
                let base = self.base(engine, &image, layout, orders).await?;
                match packages {
                    Some(text) => self.derived(engine, base, &text, layout, orders).await?,
                    None => base,
                }
            }
            Environment::Build { context, dockerfile } => {
                let (folder, own) = (layout.dir.join(CONTEXT), &layout.own);
                own.make_folders(CONTEXT, 0o700).map_err(system_failed("making a folder"))?;
                data::fetch_named(&self.node.blobs()?, &context, (own, CONTEXT), "the build context").await?;
                let digest = digest_of(own).map_err(system_failed("reading the build context"))?;
                let key = Cache::key(&["build-1", &digest, &dockerfile]);
                let order = |tag| ImageOrder::Build { context: folder, dockerfile, tag };
                self.bring(engine, Wanted::made("neap-env", key, order), layout, orders).await?
            }
            Environment::Nothing | Environment::Packages { .. } => {
                return Err(environment_failed("the environment has no image").into());
            }
        };
        let Image { reference, id, built } = image;
        let engine_name = &engine.name;
        let short = id.get(..19).unwrap_or(&id);
        self.say_first(
            layout,
            &format!("[neap] This job runs in a container of {engine_name} ({reference}, {short}).\n"),
        )?;
        let facts = BTreeMap::from([
            ("neap.isolation".to_owned(), format!("container ({engine_name}), user, supervisor")),
            ("neap.environment".to_owned(), format!("{engine_name} image {reference}")),
            ("neap.environmentDigest".to_owned(), id.clone()),
            ("neap.environmentBuild".to_owned(), if built { "built" } else { "found" }.to_owned()),
        ]);
        layout.see_in_container(&self.spec.job_name);
        Ok(Provided { ground: Ground::Container { engine: Box::new(engine.clone()), image: id }, facts })
    }

    /// An image by name, by digest, or from an archive.
    async fn base(
        &mut self,
        engine: &Engine,
        image: &str,
        layout: &Layout,
        orders: &mut Orders,
    ) -> Result<Image, NoImage> {
        if let Some(archive) = image.strip_prefix("file:") {
            let archive = PathBuf::from(archive);
            let found = archive.metadata().map_err(|e| {
                NoImage::Absent(format!("the image archive {} cannot be read ({e})", archive.display()))
            })?;
            let changed = format!("{:?} {}", found.modified().ok(), found.len());
            let key = Cache::key(&["archive-1", &archive.display().to_string(), &changed]);
            let wanted = Wanted::made("neap-image", key, |tag| ImageOrder::Load { archive, tag });
            return self.bring(engine, wanted, layout, orders).await;
        }
        let name = with_tag(image);
        if let Some(why) = self.node.absent_image(&name) {
            return Err(NoImage::Absent(why));
        }
        let wanted = Wanted {
            reference: name.clone(),
            key: Cache::key(&["pull-1", &name]),
            order: ImageOrder::Pull { image: name.clone() },
        };
        let image = self.bring(engine, wanted, layout, orders).await;
        if let Err(NoImage::Absent(why)) = &image {
            self.node.remember_absent(&name, why, boot_ms() + IMAGE_ABSENT_MS);
        }
        image
    }

    /// An image with packages on top.
    async fn derived(
        &mut self,
        engine: &Engine,
        base: Image,
        text: &str,
        layout: &Layout,
        orders: &mut Orders,
    ) -> Result<Image, NoImage> {
        let wanted = packages::read(text).map_err(environment_failed)?;
        let context = layout.dir.join(CONTEXT);
        let writing = system_failed("writing the build context");
        layout.own.make_folders(CONTEXT, 0o700).map_err(&writing)?;
        for (name, bytes) in installing::derived(&base.reference, &wanted, text) {
            layout.own.write(&format!("{CONTEXT}/{name}"), 0o644, &bytes).map_err(&writing)?;
        }
        let key = Cache::key(&["derived-1", &base.id, text]);
        let dockerfile = installing::DOCKERFILE.to_owned();
        let order = |tag| ImageOrder::Build { context, dockerfile, tag };
        let image = self.bring(engine, Wanted::made("neap-env", key, order), layout, orders).await?;
        Ok(Image { built: image.built || base.built, ..image })
    }

    /// Makes an image be there, once for all who ask.
    async fn bring(
        &mut self,
        engine: &Engine,
        wanted: Wanted,
        layout: &Layout,
        orders: &mut Orders,
    ) -> Result<Image, NoImage> {
        let Wanted { reference, key, order } = wanted;
        let ask = |e: String| prepare_failed(FailureClass::System, e);
        if let Some(id) = engine.image(&reference).await.map_err(ask)? {
            return Ok(Image { reference, id, built: false });
        }
        let began_ms = boot_ms();
        let fetches = matches!(order, ImageOrder::Pull { .. } | ImageOrder::Load { .. });
        let image = self.make(engine, Wanted { reference, key, order }, layout, orders).await;
        let took_ms = boot_ms().saturating_sub(began_ms);
        if fetches {
            self.pulled_ms += took_ms;
        } else {
            self.built_ms += took_ms;
        }
        image
    }

    /// One that was not there a moment ago: makes it, or waits for whoever does.
    async fn make(
        &mut self,
        engine: &Engine,
        wanted: Wanted,
        layout: &Layout,
        orders: &mut Orders,
    ) -> Result<Image, NoImage> {
        let Wanted { reference, key, order } = wanted;
        let ask = |e: String| prepare_failed(FailureClass::System, e);
        let pulls = matches!(order, ImageOrder::Pull { .. });
        // What was said of a pull that failed is taken back: the first line says why the host is used.
        let quiet = pulls && !self.spec.container.required;
        let mut build = match self.turn(&key, layout, !quiet, orders).await {
            Err(Exit::PrepareFailed { class: FailureClass::Environment, message }) if pulls => {
                return Err(NoImage::Absent(message));
            }
            turn => turn?,
        };
        if let Some(id) = engine.image(&reference).await.map_err(ask)? {
            return Ok(Image { reference, id, built: false });
        }
        let before = layout.said().head_bytes;
        let stage = Stage::Build { build: Some(&mut build), quiet };
        let answer = self.ask_engine(engine, Step::Image(order), layout, stage, orders).await?;
        let (message, absent) = match answer {
            Answer::Image { id } => return Ok(Image { reference, id, built: true }),
            Answer::Absent { message } => (message, true),
            Answer::Failed { message } => (message, false),
            Answer::Lost { message } => return Err(ask(message).into()),
            Answer::Ended { .. } => return Err(ask("the engine's driver did something else".into()).into()),
        };
        build.failed(&message).map_err(system_failed("keeping the build's end"))?;
        if absent {
            if quiet {
                layout.take_back(before);
            }
            return Err(NoImage::Absent(message));
        }
        Err(environment_failed(message).into())
    }

    /// Lets a process of its own do something with the engine, and reads its answer.
    async fn ask_engine(
        &mut self,
        engine: &Engine,
        step: Step,
        layout: &Layout,
        stage: Stage<'_>,
        orders: &mut Orders,
    ) -> Result<Answer, Exit> {
        let files = EngineFiles::new(&layout.dir);
        let order = Order { socket: engine.socket.clone(), step, answer: files.answer.clone() };
        files.write(&order).map_err(system_failed("writing to the attempt's folder"))?;
        let launch = Launch {
            own_program: Some(files.program()),
            env: driver_variables(&self.node.path),
            ..self.launch(layout)
        };
        let record = self.supervise(layout, &launch, stage, orders).await?;
        match &record.outcome {
            Outcome::Exited { .. } => files.read().ok_or_else(|| {
                prepare_failed(
                    FailureClass::System,
                    "the process that drives the engine ended without an answer",
                )
            }),
            _ => Err(built(&record).err().unwrap_or(Exit::Stopped)),
        }
    }
}

/// A digest of the names and contents of all files of the build context.
fn digest_of(own: &Tree) -> io::Result<String> {
    let mut names = Vec::new();
    own.walk(CONTEXT, CONTEXT_ENTRIES_MAX, |entry| {
        if let Entry::File { path, .. } = entry {
            names.push(path.display().to_string());
        }
        Ok(())
    })?;
    names.sort();
    let mut parts = Vec::new();
    for name in names {
        let content = own.read_at_most(&name, CONTEXT_BYTES_MAX)?.unwrap_or_default();
        let below = name.strip_prefix(CONTEXT).unwrap_or(&name).trim_start_matches('/').to_owned();
        parts.push((below, Cache::digest([content.as_slice()].into_iter())));
    }
    let flat: Vec<&str> = parts.iter().flat_map(|(name, digest)| [name.as_str(), digest.as_str()]).collect();
    Ok(Cache::key(&flat))
}
