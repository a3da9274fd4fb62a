//! Exports of a volume and the life of a serving process.
