//! Compressed files, recognised by their first bytes.

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, errors};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// What a decompressor of xz may take for its dictionary.
const MAX_XZ_KIB: u32 = 256 << 10;
/// The largest window of zstd: that of its levels up to 19, and of --long.
const MAX_ZSTD_WINDOW: u64 = 128 << 20;
/// The longest of the magic numbers.
const MAGIC_BYTES: u64 = 6;
const BUFFER: usize = 64 << 10;

type Raw = Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

/// The contents of a file, decompressed if its first bytes say that it is compressed.
pub(crate) fn plain(mut file: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::new();
    (&mut file).take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let first = magic.clone();
    let raw: Raw = Cursor::new(magic).chain(file);
    Ok(match first.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(buffered(raw))),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Box::new(MultiBzDecoder::new(buffered(raw))),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Box::new(XzReader::new_mem_limit(buffered(raw), true, MAX_XZ_KIB))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(Zstd::new(buffered(raw)))
        }
        _ => Box::new(raw),
    })
}

fn buffered(raw: Raw) -> BufReader<Raw> {
    BufReader::with_capacity(BUFFER, raw)
}

/// All frames of a zstd file; the decoder knows but one.
struct Zstd {
    source: BufReader<Raw>,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl Zstd {
    fn new(source: BufReader<Raw>) -> Zstd {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_ZSTD_WINDOW);
        Zstd { source, decoder, in_frame: false }
    }

    /// Begins the next frame that holds data; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            use errors::{FrameDecoderError, ReadFrameHeaderError};
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut self.source).take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl Read for Zstd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                self.in_frame = self.next_frame()?;
                if !self.in_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let (told, found) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if told.is_some() && told != found {
                return Err(io::Error::other("a checksum of zstd does not match"));
            }
            self.in_frame = false;
        }
    }
}
