//! Planted bugs: each removes or reverses one line that serves a rule, so that a test can prove
//! that the torture finds it. Compiled only with the feature `planted-bugs`, and off even there
//! until a test sets one for the current thread.

bimetal_units::planted_bugs! {
    /// FLUSH is answered before the devices were flushed.
    FlushAnsweredEarly,
    /// FUA is treated as a plain write.
    FuaIgnored,
    /// A slot is reused before the record that freed it is durable.
    FreedBeforeDurable,
    /// A record shows blocks before their data was flushed.
    RecordBeforeData,
    /// A landed copy is not superseded by a newer one in recovery.
    LandedNotSuperseded,
    /// A group is accepted without its checksums.
    TornGroupAccepted,
    /// A group of an earlier use of the segment is accepted.
    StaleGroupAccepted,
    /// A write goes in place while a landed copy lives.
    InPlaceWhileLanded,
    /// The checksum of a block is not verified.
    ChecksumNotVerified,
    /// A discard is forgotten in recovery.
    DiscardResurrected,
    /// Blocks of a reused slot that were never written are shown.
    UnwrittenShown,
    /// A segment with superseded landed copies is reused before the checkpoint that leaves it behind is durable.
    SegmentFreedEarly,
    /// A group of the log says that groups are durable which are only complete.
    ClaimedBeforeDurable,
    /// The checkpoint header is written before its pages are durable.
    HeaderBeforePages,
    /// A moving chunk is written in place.
    InPlaceWhileMoving,
    /// A move ends landed blocks that came after its copy.
    MoveEndsLaterLandings,
    /// A discard during a move is forgotten by the record that ends the move.
    MoveForgetsDiscard,
    /// The checkpoint claims records that are not yet applied to the map.
    CheckpointAheadOfMap,
    /// A merge overwrites a slow block before the landed copy is durable.
    MergeBeforeLandedDurable,
    /// FUA of a range that reads zeros already does not wait for the discard that made it so.
    BlankFuaAnsweredEarly,
    /// A page of checksums that is loaded while a checkpoint folds is not brought up to date.
    FoldedPageStale,
    /// A page of metadata is accepted in another version than the one in force.
    LostPageAccepted,
    /// A move does not verify what it copies.
    MoveNotVerified,
    /// Flushes of a device that was away are believed once it is back.
    ResetDeviceBelieved,
    /// After a batch that the devices failed, the zone is not emptied any more.
    DestageNeverResumes,
    /// What could not be moved is chosen again at once.
    FailedMoveAgain,
    /// What was left out when a device was replaced is good where there are no checksums.
    LeftOutIsGood,
    /// The log takes an area over while slots in it are still in use.
    BorrowedTooEarly,
    /// Opening forgets that the log has borrowed areas of slots.
    BorrowedForgotten,
    /// A copy is served after its home has changed.
    CopyOutlivesHome,
    /// The slot of a copy is used for something else while it is being read.
    CopyFreedUnderRead,
    /// The slot of a copy is used for something else while the copy is still being written.
    CopyFreedWhileWritten,
    /// The log takes a segment back from copies while I/O of them is in flight in it.
    RecalledTooEarly,
    /// The log goes on in a segment that is still being discarded.
    LandedUnderTrim,
    /// A write in place does not end the shadow of the home that it changes.
    ShadowOutlivesWrite,
    /// A merge does not end the shadow of the home that it changes.
    ShadowOutlivesMerge,
    /// A shadow is kept when its chunk has its home elsewhere.
    ShadowOutlivesHome,
    /// What landed of a block is not laid over what is beneath it.
    PartNotLaidOver,
    /// A part that lands on a block that is lost brings back what was beneath it.
    PartRevivesLost,
    /// What a part does not hold is given up with what it holds.
    PartLostWithRest,
    /// What fails of a device that reads nothing is held against each block.
    SilenceIsEvidence,
    /// A block with a checksum on the fast tier is written in place, and keeps it.
    FastSumOutlivesWrite,
    /// A move does not verify what has a checksum on the fast tier.
    FastSumNotVerified,
    /// A read holds what is on the fast tier against no checksum that is in memory alone.
    LiveSumNotVerified,
    /// A replay leaves closed what a record opens.
    RegionStaysClosed,
    /// The region of the home that a chunk leaves stays closed in a replay, though what the log says behind that was of this home.
    LeftRegionStaysClosed,
    /// What is at home in a closed region is written in place.
    InPlaceInClosedRegion,
    /// What opens a region counts as durable at once.
    RegionOpensEarly,
    /// A checkpoint goes on naming the page of a region that was opened.
    OpenedRegionNamed,
    /// A write in place leaves what was known of its blocks' checksums.
    LiveSumOutlivesWrite,
    /// When more of a block lands, what landed of it before is forgotten.
    PartForgotten,
    /// Of two parts that share a block of the log, a restart finds the first.
    SecondPartForgotten,
    /// Of two parts that share a block of the log, the second is not laid into it.
    SecondPartNotLaid,
    /// What a merge of parts of blocks overwrites is not recorded first.
    MergeUnannounced,
    /// The list of pins is not flushed before it is answered.
    PinsNotFlushed,
    /// Superblocks that an interrupted raise left behind are not brought up to the others of their devices.
    SuperblockNotCaughtUp,
    /// Of the pages of the directory that changed, only the first is written.
    OneDirectoryPage,
    /// What lands of a piece behind the blocks of one group is a block askew.
    LongPieceAskew,
    /// A range that ends with the last block of the largest chunk is a block short.
    LastBlockForgotten,
    /// What waits for the fence goes on once it is in a group, durable or not.
    FenceLiftedEarly,
    /// Only the first superblock of each device is raised.
    OneSuperblockRaised,
    /// A move flushes the fast device where it wrote to the slow one.
    WrongDeviceFlushed,
    /// A copy of the newest checkpoint header that cannot be read is not written again.
    HeaderCopyNotRestored,
    /// A checkpoint does not write the second copies of pages and roots.
    MirrorNotWritten,
    /// A checkpoint does not wait for the second copies before the flush that precedes its header.
    MirrorNotAwaited,
    /// The second copy of a page is looked for in its other place.
    MirrorOfOtherPlace,
    /// What landed of a chunk stays in force when all of it was written to a fresh slot.
    LandedOutlivesWhole,
    /// What a stream has begun stays in memory though something else was written there since.
    BegunOutlivesWrite,
    /// What is at home on a device that is missing reads zeros.
    MissingReadsZeros,
    /// A degraded opening ends the log.
    DegradedEndsLog,
    /// An opening without the slow device does not say what was left behind.
    LeftBehindForgotten,
    /// What is written without the slow device is of the opening before.
    AloneKeepsGeneration,
    /// A flush without the slow device is answered as if nothing were written.
    AloneFlushAnswered,
    /// Where the slow device is missing, its slots are taken.
    AloneTakesSlowSlot,
    /// A flush is answered before the slow device says that what it covers may be stale there.
    FlushBeforeMark,
    /// A FUA in place is.
    FuaBeforeMark,
    /// A header of marks counts before it was flushed.
    MarkNotFlushed,
    /// A header of marks names pages that were not flushed.
    MarkHeaderBeforePages,
    /// A discard makes nothing stale.
    DiscardUnmarked,
    /// A region is closed amid writes to it.
    ClosedAmidWrites,
    /// What has landed is marked as good where it was.
    LandedMarkedGood,
    /// An opening leaves regions closed.
    OpenedWithClosedRegions,
    /// A slot that marks name is another chunk's at once.
    NamedSlotReused,
    /// A block is written again with what was found elsewhere, whether that is the same or not.
    MendUnverified,
    /// A block is written again whatever clients write meanwhile.
    MendBesideWrite,
    /// A scrub passes over what is wrong where its page of checksums has given way to others meanwhile.
    ScrubForgetsPage,
    /// A scrub counts what an earlier one has seen of a chunk.
    ScrubTrustsEarlier,
    /// A scrub passes over a chunk that is moving.
    ScrubPassesMoving,
    /// Writes are not ordered by block locks.
    LocksIgnored,
    /// The second superblock is looked for where a device ends, not where the volume does.
    SecondAtDeviceEnd,
}
