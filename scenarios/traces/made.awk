# Makes made.iolog: 1,000 requests in about a minute to a disk of 2 TB. Eight of ten go to one of 32 hot places, the
# others anywhere in 1,000; one in 25 is a flush, one in 100 a discard, and half are not aligned to 4 KiB.
#
#   awk -f made.awk > made.iolog
function below(n) { x = (x * 1664525 + 1013904223) % 4294967296; return int(x / 65536) % n }
BEGIN {
    x = 1
    print "fio version 3 iolog\n0 disk add\n0 disk open"
    for (n = 0; n < 1000; n++) {
        us += 1000 + below(120) * 1000
        if (n % 25 == 24) { print us, "disk sync 0 0"; continue }
        place = below(10) < 8 ? below(32) * 31 : below(1000)
        offset = place * 2000000000 - (place * 2000000000) % 4096 + below(200) * 4096
        length_ = 4096 * (1 + below(16))
        if (n % 2) { offset += 512 * below(8); length_ -= 512 * below(8) }
        if (n % 100 == 50) { print us, "disk trim", sprintf("%.0f", offset), length_ * 4; continue }
        print us, "disk", (below(10) < 6 ? "read" : "write"), sprintf("%.0f", offset), length_
    }
    print us, "disk close"
}
