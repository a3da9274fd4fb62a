//! Planted bugs: each removes or reverses one line that serves a rule of protection, so that tests can prove that they find it.
//! Compiled for tests only, and off even there until one sets it for the current thread.

bimetal_units::planted_bugs! {
    /// The fast device is written over where what was frozen has not been read yet.
    FrozenOverwritten,
    /// A write is not noted when it has ended.
    EndNotNoted,
    /// What could not be read of the fast device counts as copied.
    UnreadIsCopied,
    /// The fast device is written to before the map says that the image may lack it.
    RegionNotOpened,
    /// What was frozen goes to the ring though the map does not say that the image may lack it.
    EpochNotOpened,
    /// A region is closed while a map that says so is not yet durable, and written to again.
    ClosingForgotten,
    /// The slow device is written over, and what it held is kept nowhere.
    NothingKept,
    /// What it held is in the ring, and not flushed.
    KeptUnflushed,
    /// What a write that was on its way at a freeze has left is kept before it is flushed.
    UnsettledKept,
    /// The slow device is written over where nobody needed a part of what it held.
    NeededInPart,
    /// What nobody needed at a freeze is not kept for the image that counts until then.
    ImageForgotten,
    /// The slow device is written over while what it held is on its way to the ring, as nobody needs it any more.
    ClaimDropped,
    /// What was kept before a freeze counts as kept after it.
    KeptForever,
    /// What could not be read of the slow device counts as kept.
    UnkeptIsKept,
    /// A group is taken for durable though one before it is not written.
    GroupsOutOfOrder,
    /// An image counts though a group is not there yet that stands in the ring before what it is made of.
    CommittedOverGap,
    /// An image counts before what it is made of is flushed.
    CommittedUnflushed,
    /// The fast device is taken for what was read of it, though it has that in its cache alone.
    FastUnflushed,
    /// An image counts before all of the fast device was copied.
    CommittedEarly,
    /// The ring is trimmed before what was applied is flushed.
    TrimmedUnflushed,
    /// What a newer image needs is trimmed.
    TrimmedFar,
    /// Writes go on before it is durable that there is no image any more.
    DroppedLate,
    /// After a crash the freezes are numbered as before it.
    NumbersAgain,
    /// A group that lies at the tail from before counts.
    StaleTail,
    /// Groups that lie in the ring from before count.
    OldGroupsCount,
    /// Nothing waits for the first header of an opening.
    NotJoined,
    /// A flush of the slow device that fails, unless the machine asked for it, is told to nobody.
    FlushErrorKept,
    /// The copy keeps the superblocks of a fast device whose place another one has taken.
    ReplacedUnnoted,
    /// What has rotted in the ring goes to the copy.
    RotApplied,
    /// Where an image is made anew, what the ring had and the copy has not does not go to the copy.
    RingForgotten,
    /// The header that can be read counts though the other one may be newer.
    DoubtIgnored,
    /// The ring counts as far as it can be read, though more of it was durable.
    BreakIgnored,
    /// Payload for the image comes from the memory that the engine's moves have theirs from, which wait for it.
    MemoryShared,
    /// Where what is being kept counts no more, nobody goes on to say that there is no image.
    EndedQuietly,
    /// Where it cannot be said that there is no image, it is never tried again.
    StuckForGood,
    /// What is refused is answered in the call that asks for it.
    RefusedAtOnce,
    /// A device that was away is believed when it is back.
    AbsenceIgnored,
    /// What cannot be read of the fast device is copied again and again.
    CopiedForEver,
    /// What is kept of the slow device takes the room of the next epoch.
    RoomNotKept,
    /// Where clients are to wait, an epoch may be larger than what has room.
    QuotaIgnored,
    /// An epoch begins that the ring has no room for.
    BegunWithoutRoom,
    /// An image that has aged is not made anew.
    NeverAnew,
    /// The copy takes the place of the fast device though something is lost of the image.
    LostStandsIn,
    /// What the ring does not have, as it is in its place still, is not put there before that place changes.
    UnkeptStandsIn,
    /// The slow device gives the fast one another name before a header says that the copy has it.
    NamedUnsaid,
    /// The slow device goes back to the image while it still names the old fast device.
    NamedLate,
    /// The slow device is left as it is where the copy takes the place of the fast one.
    NotTakenBack,
    /// The copy counts as the fast device before it is flushed.
    StandsUnflushed,
    /// A map that could not be written is written again at once.
    MapAgainAtOnce,
}
